"""The table of the cold tier: made once, fenced by offsets, read in order, told from another log's."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from tracklog.infra.cold.columns import EVENTS
from tracklog.infra.cold.scan import scan
from tracklog.infra.cold.staging import staged
from tracklog.infra.cold.table import ColdTable, Identity, app_id, open_events
from tracklog.schemas.errors import ColdConflict, ColdDamaged, ColdMismatch, ColdMissing, ColdRefused

LOG = Identity("cluster", "topic-1", "tracklog.events")
NAMES = iter(f"file-{n}" for n in range(1_000_000))


def rows(partition: int, offsets: range, *, tenant: str = "acme", model: str = "none") -> pa.Table:
    size = len(offsets)
    values: dict[str, list[object]] = {
        "cluster_id": ["cluster"] * size,
        "topic_id": ["topic-1"] * size,
        "partition": [partition] * size,
        "offset": list(offsets),
        "skipped": [0] * size,
        "append_ms": [1_700_000_000_000 + offset for offset in offsets],
        "trajectory_id": [f"t{offset % 3}" for offset in offsets],
        "event_type": ["TaskStarted"] * size,
        "fingerprint": [b"12345678"] * size,
        "payload": [b"payload-%d" % offset for offset in offsets],
        "tenant": [tenant] * size,
        "date": [date(2026, 11, 30)] * size,
        "model": [model] * size,
    }
    for name in ("seq", "epoch", "turn", "lamport", "recorded_at", "check"):
        values[name] = [7] * size
    for name in ("stated_hash", "type_version", "inbox_source", "inbox_seq", "body"):
        values[name] = [None] * size
    return pa.table({field.name: pa.array(values[field.name], field.type) for field in EVENTS}, schema=EVENTS)


def export(table: ColdTable, moved: dict[int, int], *parts: pa.Table) -> None:
    added = [one for part in parts for one in staged(table, part, lambda: next(NAMES), 0)]
    table.commit(added, {app_id(*LOG[:2], partition): offset for partition, offset in moved.items()})


def offsets_of(tables: Iterator[pa.Table]) -> list[int]:
    return [offset for part in tables for offset in part["offset"].to_pylist()]


@pytest.fixture
def table(tmp_path: Path) -> ColdTable:
    return ColdTable.create_if_missing(str(tmp_path / "cold"), {}, LOG)


def test_rows_and_their_next_offset_are_in_together(table: ColdTable, tmp_path: Path) -> None:
    assert table.next_offset(0) is None

    export(table, {0: 5, 1: 2}, rows(0, range(5)), rows(1, range(2)))

    again = open_events(str(tmp_path / "cold"), {})
    assert (again.next_offset(0), again.next_offset(1), again.next_offset(2)) == (5, 2, None)
    assert again.identity == LOG
    assert offsets_of(scan(again, 0)) == [0, 1, 2, 3, 4]


def test_a_handle_that_did_not_see_the_other_writer_cannot_commit(table: ColdTable, tmp_path: Path) -> None:
    late = open_events(str(tmp_path / "cold"), {})
    export(table, {0: 5}, rows(0, range(5)))

    with pytest.raises(ColdConflict):
        export(late, {0: 5}, rows(0, range(5)))

    late.refresh()
    assert late.next_offset(0) == 5
    assert offsets_of(scan(late, 0)) == [0, 1, 2, 3, 4]


def test_writers_of_other_partitions_do_not_disturb_each_other(table: ColdTable, tmp_path: Path) -> None:
    other = open_events(str(tmp_path / "cold"), {})
    export(table, {0: 5}, rows(0, range(5)))
    export(other, {1: 3}, rows(1, range(3)))

    table.refresh()
    assert (table.next_offset(0), table.next_offset(1)) == (5, 3)


def test_one_partition_is_read_in_order_from_files_of_several(table: ColdTable) -> None:
    for start in range(0, 100, 10):
        both = pa.concat_tables([rows(0, range(start, start + 10)), rows(3, range(start, start + 10), model="m/1 %2F")])
        export(table, {0: start + 10, 3: start + 10}, both)
    table.handle.optimize.compact()
    table.refresh()

    assert len(table.files()) == 2
    assert offsets_of(scan(table, 3)) == list(range(100))
    assert offsets_of(scan(table, 3, 15, 32)) == list(range(15, 32))
    assert next(scan(table, 3, columns=["model", "payload"])).to_pylist()[0] == {
        "model": "m/1 %2F",
        "payload": b"payload-0",
    }


def test_a_table_of_a_recreated_topic_is_refused_and_named(table: ColdTable, tmp_path: Path) -> None:
    export(table, {0: 5}, rows(0, range(5)))

    with pytest.raises(ColdMismatch, match=r"id topic-1.*id topic-2"):
        ColdTable.create_if_missing(str(tmp_path / "cold"), {}, LOG._replace(topic_id="topic-2"))


def test_somebody_elses_delta_table_is_refused(tmp_path: Path) -> None:
    DeltaTable.create(str(tmp_path / "events"), pa.schema([("a", pa.int64())]))

    with pytest.raises(ColdMismatch):
        open_events(str(tmp_path), {})


def test_no_table_is_an_error_that_says_what_makes_one(tmp_path: Path) -> None:
    with pytest.raises(ColdMissing) as caught:
        open_events(str(tmp_path / "nothing"), {})

    assert "tracklog export" in caught.value.hint


def test_a_file_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "cold").write_text("not a folder")

    with pytest.raises((ColdRefused, ColdMissing), match="cold"):
        ColdTable.create_if_missing(str(tmp_path / "cold"), {}, LOG)


def test_a_table_of_an_older_program_gets_the_columns_that_it_lacks(tmp_path: Path) -> None:
    whole = ColdTable.create_if_missing(str(tmp_path / "whole"), {}, LOG)
    older = pa.schema([field for field in EVENTS if field.name != "inbox_seq"])
    DeltaTable.create(
        str(tmp_path / "cold" / "events"),
        older,
        partition_by=["tenant", "date", "model"],
        configuration={f"tracklog.{name}": str(value) for name, value in LOG._asdict().items()},
        raise_if_key_not_exists=False,
    )

    table = ColdTable.create_if_missing(str(tmp_path / "cold"), {}, LOG)

    assert set(table.handle.schema().to_arrow().names) == set(whole.handle.schema().to_arrow().names)
    export(table, {0: 5}, rows(0, range(5)))
    assert offsets_of(scan(table, 0)) == [0, 1, 2, 3, 4]


def test_a_truncated_file_is_named_with_what_it_held(table: ColdTable, tmp_path: Path) -> None:
    export(table, {0: 5}, rows(0, range(5)))
    (file,) = table.files()
    path = tmp_path / "cold" / "events" / file.path
    data = path.read_bytes()
    path.chmod(0o644)
    path.write_bytes(data[: len(data) // 2])

    with pytest.raises(ColdDamaged, match="offsets 0 to 4") as caught:
        list(scan(table, 0))
    assert file.path in caught.value.message


def test_values_that_are_no_names_of_files_come_back_as_they_were(table: ColdTable) -> None:
    odd = "a/../b c%20ü'=\"x\\"
    export(table, {0: 2}, rows(0, range(2), tenant=odd, model=odd))

    found = [row for part in scan(table, 0, columns=["tenant", "model"]) for row in part.to_pylist()]

    assert found == [{"tenant": odd, "model": odd}] * 2
