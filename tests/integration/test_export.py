"""The exporter on a real log: every record once, whatever happens between reading and committing."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.chains import append_all, run_of
from tests.support.exporting import PARTITIONS, Exporting, exporting_on, runs
from tracklog.consumers.cold.checked import CheckedLog
from tracklog.infra.blobs import open_blobs
from tracklog.infra.clock import ManualClock
from tracklog.infra.cold.columns import row_check
from tracklog.infra.log.partitioner import partition_of
from tracklog.infra.log.port import Record
from tracklog.infra.stack.process import wait_until
from tracklog.schemas.errors import ColdMismatch, ColdMissing, OffsetTrimmed
from tracklog.schemas.events import TaskStarted
from tracklog.schemas.values import BlobRef, Body, Driver

WAIT_S = 30.0


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Exporting]:
    with exporting_on(f"sqlite:{tmp_path / 'log.db'}", "tracklog", tmp_path) as world:
        yield world


def test_every_record_is_in_the_table_once_byte_for_byte(world: Exporting) -> None:
    written = world.fill(*runs(20))

    first = world.drain()
    again = world.drain()

    assert world.exported() == world.expected()
    assert (first.told.events, again.told.events) == (written, 0)


def test_columns_say_what_the_event_says(world: Exporting) -> None:
    world.fill(run_of("run-1", model="model-a", tenant="acme"))

    world.drain()

    rows = sorted(world.rows(), key=lambda row: row["seq"])
    reply = next(row for row in rows if row["event_type"] == "ModelReplied")
    assert [row["seq"] for row in rows] == list(range(len(rows)))
    assert {row["tenant"] for row in rows} == {"acme"}
    assert [row["model"] for row in rows] == ["none"] * reply["seq"] + ["model-a"] * (len(rows) - reply["seq"])
    assert json.loads(reply["body"])["usage"]["input_tokens"] == 100
    digest = hashlib.sha256(reply["fingerprint"] + reply["payload"]).digest()
    assert reply["check"] == row_check(digest, reply["partition"], reply["offset"], reply["append_ms"])
    assert (reply["type_version"], reply["stated_hash"]) == (1, None)


def test_a_restart_goes_on_with_the_model_that_the_table_says(world: Exporting) -> None:
    chain = run_of("run-1", model="model-a", ending=None)
    world.fill(chain)
    world.drain()
    done = len(chain.records)
    chain.add(TaskStarted(driver=Driver.IMPORT, task=Body.of("more"), agent="a"))
    append_all(world.log, world.topic, chain.records[done:])

    world.drain()

    assert max(world.rows(), key=lambda row: row["seq"])["model"] == "model-a"


def test_records_that_are_no_events_go_aside_and_stop_nothing(world: Exporting) -> None:
    key = next(key for key in (b"key-%d" % n for n in range(100)) if partition_of(key, PARTITIONS) == 1)
    heard: list[object] = []
    world.fill(*runs(3))
    for value in (b"not ours", b""):
        world.log.append(world.topic, key, value, (("h", b"\x01"),), lambda *said: heard.append(said))
    world.log.flush(WAIT_S)
    world.fill(*runs(3))

    done = world.drain()

    foreign = world.undecodable()
    assert done.told.undecodable == 2
    assert sorted(row["value"] for row in foreign) == [b"", b"not ours"]
    assert foreign[0]["headers"] == '[["h", "01"]]'
    assert len(world.rows()) + len(foreign) == len(world.expected())
    assert world.drain().told.undecodable == 0
    assert len(world.undecodable()) == 2


def test_a_partition_of_nothing_but_strangers_moves_on(world: Exporting) -> None:
    heard: list[object] = []
    world.log.append(world.topic, b"key", b"not ours", (), lambda *said: heard.append(said))
    world.log.flush(WAIT_S)

    world.drain()

    assert world.table().next_offset(partition_of(b"key", PARTITIONS)) == 1
    assert world.drain().told.commits == 0


def test_two_exporters_that_both_own_everything_write_nothing_twice(world: Exporting) -> None:
    world.fill(*runs(20))
    first, second = world.export(), world.with_cold(rows_max=50).export()
    for one in (first, second):
        for partition in range(PARTITIONS):
            one.exporter.restore(partition)
    reader = world.log.reader(world.topic, dict.fromkeys(range(PARTITIONS), 0))
    batches: dict[int, list[Record]] = {}
    while records := reader.poll(50, 0.0):
        for record in records:
            batches.setdefault(record.partition, []).append(record)
    reader.close()

    for partition, records in batches.items():
        half = len(records) // 2
        second.exporter.fold(partition, records[:half], 0)  # commits whenever it has 50 rows
        first.exporter.fold(partition, records, 0)
    second.exporter.commit()
    first.exporter.commit()

    assert world.exported() == world.expected()


def test_a_commit_that_others_were_quicker_than_keeps_what_is_new(world: Exporting) -> None:
    world.fill(*runs(6))
    slow = world.export()
    for partition in range(PARTITIONS):
        slow.exporter.restore(partition)
    world.drain()
    world.fill(*runs(6, tenant="late"))
    reader = world.log.reader(world.topic, dict.fromkeys(range(PARTITIONS), 0))
    while records := reader.poll(500, 0.0):
        for partition in range(PARTITIONS):
            slow.exporter.fold(partition, [one for one in records if one.partition == partition] or [], 0)
    reader.close()
    slow.exporter.release()

    assert slow.exporter.unflushed is None
    assert world.exported() == world.expected()


def test_a_running_exporter_commits_when_nothing_comes_and_when_told_to_stop(world: Exporting) -> None:
    stop, work = threading.Event(), world.export()
    thread = threading.Thread(target=work.loop.run, args=(work.group, stop), daemon=True)
    thread.start()
    try:
        written = world.fill(*runs(4))
        wait_until(lambda: work.told.events == written, WAIT_S)
        written += world.fill(*runs(1, tenant="last"))
        wait_until(lambda: sum(work.lag().values()) == 0 or work.exporter.rows > 0, WAIT_S)
    finally:
        stop.set()
        thread.join(WAIT_S)

    assert world.exported() == world.expected()
    assert work.told.events == written


@pytest.mark.parametrize("days", [-1, 1])
def test_a_clock_that_is_wrong_by_a_day_changes_nothing(world: Exporting, days: int) -> None:
    world.fill(*runs(4))
    clock = ManualClock()
    clock.jump_wall(days * 86_400)

    work = world.drain(clock=clock)

    assert world.exported() == world.expected()
    assert work.told.commits == 1


def test_a_recreated_log_is_refused(world: Exporting, tmp_path: Path) -> None:
    world.fill(*runs(1))
    world.drain()

    with exporting_on(f"sqlite:{tmp_path / 'other.db'}", "tracklog", tmp_path) as other, pytest.raises(ColdMismatch):
        other.export()


def test_a_gap_is_an_error_and_accepted_only_when_told_to(world: Exporting) -> None:
    world.fill(*runs(4))
    world.drain()
    world.fill(*runs(4, tenant="late"))
    ends = {p: world.log.bounds(world.topic, p).end for p in range(PARTITIONS)}
    gone = next(p for p, end in ends.items() if end > (world.table().next_offset(p) or 0) + 2)
    begin = world.table().next_offset(gone)
    assert begin is not None
    world.log.delete_records(world.topic, {gone: begin + 2})

    with pytest.raises(OffsetTrimmed, match="2 offsets are in neither"):
        world.drain()
    world.drain(accept_gap=True)

    table = world.table()
    assert table.gap_end(gone, begin) == begin + 2
    assert table.next_offset(gone) == ends[gone]
    assert [row["offset"] for row in world.rows() if row["partition"] == gone and row["offset"] >= begin] == list(
        range(begin + 2, ends[gone])
    )


def test_a_first_export_without_the_beginning_of_the_log_stops_at_that_gap_or_records_it(world: Exporting) -> None:
    world.fill(*runs(4))
    gone = next(p for p in range(PARTITIONS) if world.log.bounds(world.topic, p).end > 2)
    world.log.delete_records(world.topic, {gone: 2})

    with pytest.raises(OffsetTrimmed, match=r"the table has nothing of it, .* 2 offsets are in neither"):
        world.drain()
    world.drain(accept_gap=True)
    again = world.drain()

    table, cold = world.table(), world.settings.cold
    assert (table.first_offset(gone), table.gap_end(gone, 0)) == (2, 2)
    assert (world.exported(), again.told.commits) == (world.expected(), 0)
    checked = CheckedLog(cold.url, cold.store_options(), timeout_s=cold.timeout_s, blobs=None)
    bounds = checked.bounds(world.topic, gone)
    read = list(checked.records(world.topic, gone, *bounds))
    assert (bounds.first, read[0].offset, checked.counts[gone].gaps) == (2, 2, [(0, 2)])
    assert checked.faults == []


def test_a_table_that_was_set_back_under_a_running_exporter_stops_it(world: Exporting, tmp_path: Path) -> None:
    world.fill(*runs(2))
    work = world.drain()
    partition = next(iter(work.told.offsets))
    work.exporter.restore(partition)
    (tmp_path / "cold").rename(tmp_path / "moved")
    world.export()
    world.fill(*runs(2, tenant="late"))
    reader = world.log.reader(world.topic, {partition: work.told.offsets[partition]})
    records = reader.poll(1000, 1.0)
    reader.close()

    work.exporter.fold(partition, records, 0)

    with pytest.raises((ColdMismatch, ColdMissing), match="cold"):
        work.exporter.commit()


def test_blobs_are_there_before_the_event_that_names_them(world: Exporting, tmp_path: Path) -> None:
    chain = run_of("run-1", turns=0, ending=None)
    source = open_blobs(world.settings.blobs.url)
    held = source.put(b"the whole of it", media_type="text/plain")
    gone = hashlib.sha256(b"lost").hexdigest()
    stored = Body(text="the", hash=bytes.fromhex(held), size_bytes=15, stored=True)
    chain.add(TaskStarted(driver=Driver.IMPORT, task=stored, agent="a"))
    prompt = BlobRef(hash=bytes.fromhex(gone), size_bytes=4, media_type='text/"odd\\"')
    chain.add(TaskStarted(driver=Driver.IMPORT, task=Body.of("x"), agent="a", prompt_template=prompt))
    world.fill(chain)
    lost: list[object] = []

    work = world.drain(on_lost=lost.append)

    assert open_blobs(str(tmp_path / "cold" / "blobs")).get(held) == b"the whole of it"
    assert (work.blobs.new, work.blobs.lost, len(lost)) == (1, 1, 1)
    assert world.exported() == world.expected()
