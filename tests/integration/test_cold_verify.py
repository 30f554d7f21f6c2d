"""`tracklog cold verify` names the event that is wrong in a copy of the table somebody has changed."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.chains import run_of
from tests.support.exporting import Exporting, exporting_on, runs
from tracklog.consumers.cold.checked import Fault
from tracklog.consumers.cold.verify import ColdVerification, verification_of
from tracklog.infra.blobs import open_blobs
from tracklog.infra.clock import SystemClock
from tracklog.infra.cold.upkeep import compact
from tracklog.schemas.audit_report import Finding
from tracklog.schemas.events import TaskStarted
from tracklog.schemas.values import Body, Driver

Change = Callable[[pa.Table], pa.Table]
AT = 30


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Exporting]:
    with exporting_on(f"sqlite:{tmp_path / 'log.db'}", "tracklog", tmp_path) as world:
        world.fill(*runs(12, model=""))
        heard: list[object] = []
        world.log.append(world.topic, b"stranger", b"not ours", (), lambda *said: heard.append(said))
        world.log.flush(10.0)
        world.drain()
        yield world


def verified(world: Exporting) -> tuple[ColdVerification, list[Finding]]:
    found = verification_of(world.settings)
    findings = [fault for report in found.histories.reports() for fault in report.faults]
    return found, findings


def changed(world: Exporting, change: Change) -> pa.Table:
    """The one file of the table, with other rows under the same name; returns what it was."""
    (file,) = world.table().files()
    path = Path(world.settings.cold.url) / "events" / file.path
    rows = pq.ParquetFile(path).read()
    path.chmod(0o644)
    pq.write_table(change(rows), path, row_group_size=1000)
    return rows


def with_value(name: str, value: object) -> Change:
    def change(rows: pa.Table) -> pa.Table:
        column = rows[name].to_pylist()
        column[AT] = value
        return rows.set_column(rows.column_names.index(name), name, pa.array(column, rows.schema.field(name).type))

    return change


def place(rows: pa.Table, at: int = AT) -> tuple[int, int, str, int]:
    row = rows.slice(at, 1).to_pylist()[0]
    return row["partition"], row["offset"], row["trajectory_id"], row["seq"]


def where(fault: Fault) -> tuple[int | None, int | None, str, int | None]:
    return fault.partition, fault.offset, fault.trajectory_id, fault.seq


def test_a_table_that_nobody_touched_is_sound_before_and_after_compaction(world: Exporting) -> None:
    found, findings = verified(world)
    assert (found.sound, findings, found.rows, found.histories.trajectories) == (True, [], len(world.rows()), 12)
    assert sum(count.undecodable for count in found.log.counts.values()) == 1

    world.fill(*runs(12, tenant="late"))
    world.drain()
    compact(world.table(), SystemClock().now_us())

    assert verified(world)[0].log.faults == []


@pytest.mark.parametrize(
    ("name", "value"),
    [("body", '{"forged":true}'), ("seq", 999), ("event_type", "Forged"), ("recorded_at", 1), ("turn", 77)],
)
def test_an_edited_column_is_named_at_its_event(world: Exporting, name: str, value: object) -> None:
    rows = changed(world, with_value(name, value))

    (fault,) = verified(world)[0].log.faults

    assert (fault.what, fault.partition, fault.offset) == ("altered", *place(rows)[:2])
    assert f"column {name}" in fault.detail


def test_an_edited_payload_is_named_at_its_event(world: Exporting) -> None:
    rows = changed(world, lambda all_rows: with_value("payload", bytes(_flipped(all_rows, AT)))(all_rows))

    found, findings = verified(world)

    (fault,) = found.log.faults
    assert (fault.what, where(fault)) == ("altered", place(rows))
    assert any((one.partition, one.offset) == place(rows)[:2] for one in findings)


def _flipped(rows: pa.Table, at: int) -> bytearray:
    payload = bytearray(rows["payload"][at].as_py())
    payload[-1] ^= 1
    return payload


def test_the_last_event_of_a_trajectory_cannot_be_edited_either(world: Exporting) -> None:
    """Nothing hangs on it, so the chain says nothing."""
    rows: list[pa.Table] = []

    def change(found: pa.Table) -> pa.Table:
        rows.append(found)
        ends = [n for n, kind in enumerate(found["event_type"].to_pylist()) if kind == "TaskEnded"]
        column = found["payload"].to_pylist()
        column[ends[0]] = bytes(_flipped(found, ends[0]))
        rows.append(found.slice(ends[0], 1))
        return found.set_column(found.column_names.index("payload"), "payload", pa.array(column, pa.binary()))

    changed(world, change)

    (fault,) = verified(world)[0].log.faults
    assert where(fault) == place(rows[1], 0)


def test_a_dropped_row_is_named_by_its_offset(world: Exporting) -> None:
    rows = changed(world, lambda rows: pa.concat_tables([rows.slice(0, AT), rows.slice(AT + 1)]))

    faults = verified(world)[0].log.faults

    assert [fault.what for fault in faults] == ["altered file", "missing"]
    assert (faults[1].partition, faults[1].offset) == place(rows)[:2]


def test_two_rows_that_changed_places_are_named(world: Exporting) -> None:
    def change(rows: pa.Table) -> pa.Table:
        """Neighbours of one trajectory: each under the other's offset."""
        ids, offsets = rows["trajectory_id"].to_pylist(), rows["offset"].to_pylist()
        other = next(n for n in range(AT + 1, len(ids)) if ids[n] == ids[AT])
        offsets[AT], offsets[other] = offsets[other], offsets[AT]
        return rows.set_column(rows.column_names.index("offset"), "offset", pa.array(offsets, pa.int64()))

    rows = changed(world, change)

    faults = verified(world)[0].log.faults
    assert [(fault.what, fault.trajectory_id) for fault in faults] == [("altered", place(rows)[2])] * 2
    assert place(rows)[1] in {fault.offset for fault in faults}


def test_an_inserted_row_is_named(world: Exporting) -> None:
    rows = changed(
        world, lambda rows: pa.concat_tables([rows.slice(0, AT), rows.slice(AT, 1), rows.slice(AT, rows.num_rows - AT)])
    )

    faults = verified(world)[0].log.faults

    assert ("twice", place(rows)) in [(fault.what, where(fault)) for fault in faults]


def test_rows_beyond_the_end_are_named(world: Exporting) -> None:
    def change(rows: pa.Table) -> pa.Table:
        forged = rows.slice(AT, 1)
        offset = pa.array([10_000], pa.int64())
        at = forged.column_names.index("offset")
        return pa.concat_tables([rows, forged.set_column(at, forged.schema.field("offset"), offset)])

    changed(world, change)

    faults = verified(world)[0].log.faults
    assert ("beyond the end", 10_000) in [(fault.what, fault.offset) for fault in faults]


def test_rows_that_were_cut_off_are_named(world: Exporting) -> None:
    rows = changed(world, lambda rows: rows.slice(0, rows.num_rows - 5))

    faults = [fault for fault in verified(world)[0].log.faults if fault.what == "missing"]

    last = rows.num_rows - 5
    assert (faults[-1].partition, faults[-1].offset) == place(rows, last)[:2]


@pytest.mark.parametrize("part", ["begin", "half", "gone"])
def test_a_corrupt_file_is_named_with_what_it_held(world: Exporting, part: str) -> None:
    (file,) = world.table().files()
    path = Path(world.settings.cold.url) / "events" / file.path
    path.chmod(0o644)
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2] if part == "half" else bytes(64) + data[64:])
    if part == "gone":
        path.unlink()

    faults = verified(world)[0].log.faults

    (damaged,) = [fault for fault in faults if fault.what == "damaged file"]
    assert file.path in damaged.detail
    assert where(damaged) == (None, None, "", None), "it holds several partitions: none of them is its place"
    assert file.partition_min < file.partition_max
    assert any(fault.what == "missing" for fault in faults)


def test_a_file_of_somebody_else_is_named_and_is_no_fault(world: Exporting) -> None:
    (Path(world.settings.cold.url) / "events" / "theirs.parquet").write_bytes(b"x")

    found, _ = verified(world)

    assert (found.sound, found.leftovers.foreign) == (True, ("theirs.parquet",))


def test_a_table_of_what_is_no_event_that_is_gone_is_a_fault_and_the_events_are_checked(world: Exporting) -> None:
    shutil.rmtree(Path(world.settings.cold.url) / "undecodable")

    found, _ = verified(world)

    assert (found.rows, found.histories.trajectories) == (len(world.rows()), 12)
    assert found.log.faults[0].what == "missing table"
    assert "undecodable" in found.log.faults[0].detail
    assert [fault.what for fault in found.log.faults[1:]] == ["missing"], "the record of it that is no event"


def test_a_blob_that_is_gone_is_named_with_its_event(world: Exporting) -> None:
    chain = run_of("run-99", turns=0, ending=None)
    held = open_blobs(world.settings.blobs.url).put(b"the whole of it")
    body = Body(text="the", hash=bytes.fromhex(held), size_bytes=15, stored=True)
    chain.add(TaskStarted(driver=Driver.IMPORT, task=body, agent="a"))
    world.fill(chain)
    world.drain()
    assert verified(world)[0].log.faults == []
    shutil.rmtree(Path(world.settings.cold.url) / "blobs")

    (fault,) = verified(world)[0].log.faults

    assert (fault.what, fault.trajectory_id, fault.seq) == ("blob", "run-99", chain.seq - 1)
    assert held in fault.detail
