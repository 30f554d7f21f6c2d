"""What every reader of events may rest on, whether the log, the cold tier or both together give them (DESIGN §2)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.chains import append_all, run_of
from tests.support.cold import export_to
from tracklog.infra.cold.cold_log import ColdLog
from tracklog.infra.cold.joined import JoinedLog
from tracklog.infra.log.open import open_log
from tracklog.infra.log.partitioner import partition_of
from tracklog.infra.log.port import Bounds, Log, Reader, Record
from tracklog.infra.log.ranges import read_range
from tracklog.infra.settings import Settings
from tracklog.schemas.errors import OffsetTrimmed, RangeError, TopicMissing
from tracklog.schemas.topics import TopicSpec

PARTITIONS = 3
TRIMMED = 20
EXPORTED_BEHIND = 7
"""Records of each partition that were exported and are still in the log."""


class Case(NamedTuple):
    """`records` is what was appended, by partition, as the log itself gave it before anything was trimmed."""

    log: Log
    topic: str
    records: dict[int, list[Record]]


def filled(url: str, topic: str) -> Case:
    log = open_log(url)
    log.create([TopicSpec(topic, PARTITIONS, 1, {"message.timestamp.type": "LogAppendTime"})])
    append_all(log, topic, [record for n in range(12) for record in run_of(f"run-{n}", turns=2).records])
    return Case(log, topic, {p: list(read_range(log, topic, p, 0, 10_000)) for p in range(PARTITIONS)})


@pytest.fixture(
    params=["memory", "sqlite", "cold", "joined memory", pytest.param("joined kafka", marks=pytest.mark.kafka)]
)
def case(
    request: pytest.FixtureRequest, tmp_path: Path, log_urls: Callable[[str], str], fresh_prefix: str
) -> Iterator[Case]:
    kind = request.param
    where, topic = str(tmp_path / "cold"), f"{fresh_prefix}.events"
    inner = kind.split()[-1] if kind != "cold" else "memory"
    made = filled(f"memory:{fresh_prefix}" if inner == "memory" else log_urls(inner), topic)
    assert all(len(records) > TRIMMED + EXPORTED_BEHIND for records in made.records.values())
    try:
        if kind in ("memory", "sqlite"):
            yield made
            return
        export_to(made.log, Settings.model_validate({"prefix": fresh_prefix, "cold": {"url": where}}), rows_max=10)
        if kind == "cold":
            yield made._replace(log=open_log(f"cold:{where}"))
            return
        made.log.delete_records(topic, dict.fromkeys(range(PARTITIONS), TRIMMED))
        yield made._replace(log=JoinedLog(made.log, topic, lambda: ColdLog(where, {})))
    finally:
        made.log.close()


def drained(log: Log, topic: str, starts: dict[int, int], timeout_s: float = 20.0) -> list[Record]:
    """To the ends of these partitions, by one reader."""
    ends = {p: log.bounds(topic, p).end for p in starts}
    reader, records = log.reader(topic, starts), list[Record]()
    deadline_s = time.monotonic() + timeout_s
    while any(reader.position(p) < end for p, end in ends.items()):
        assert time.monotonic() < deadline_s, {p: reader.position(p) for p in starts}
        records += reader.poll(11, 0.2)
    reader.close()
    return records


def test_every_record_comes_as_it_was_appended(case: Case) -> None:
    for partition, records in case.records.items():
        assert case.log.bounds(case.topic, partition) == Bounds(0, len(records))
        assert list(read_range(case.log, case.topic, partition, 0, 10_000)) == records


def test_any_range_is_that_part_of_it(case: Case) -> None:
    records = case.records[1]
    for start, end in ((0, 1), (0, 5), (3, 12), (TRIMMED - 1, TRIMMED + 1), (TRIMMED, TRIMMED + 2), (9, 10_000)):
        assert list(read_range(case.log, case.topic, 1, start, end, batch=4)) == records[start:end]
    assert list(read_range(case.log, case.topic, 1, len(records), 10_000)) == []


def test_several_partitions_are_read_in_order_each_from_its_start(case: Case) -> None:
    starts = {0: 0, 1: TRIMMED + 2, 2: 5}
    found = drained(case.log, case.topic, starts)
    for partition, start in starts.items():
        assert [one for one in found if one.partition == partition] == case.records[partition][start:]


def test_seeking_goes_on_there(case: Case) -> None:
    reader = case.log.reader(case.topic, {0: TRIMMED + 3})
    for offset in (2, TRIMMED + 1, 0):
        reader.seek(0, offset)
        assert reader.position(0) == offset
        found: list[Record] = []
        deadline_s = time.monotonic() + 20
        while not found and time.monotonic() < deadline_s:
            found = reader.poll(3, 0.2)
        assert found == case.records[0][offset : offset + 3]
        assert reader.position(0) == offset + 3
    reader.close()


def test_at_the_end_nothing_comes_and_behind_it_is_an_error(case: Case) -> None:
    end = len(case.records[2])
    reader = case.log.reader(case.topic, {2: end})
    assert reader.poll(10, 0.1) == []
    assert reader.position(2) == end
    reader.close()
    beyond = case.log.reader(case.topic, {2: end + 5})
    deadline_s = time.monotonic() + 20
    with pytest.raises(OffsetTrimmed, match=f"offset {end + 5} "):
        polled_until(beyond, deadline_s)
    beyond.close()


def polled_until(reader: Reader, deadline_s: float) -> None:
    while time.monotonic() < deadline_s:
        reader.poll(10, 0.2)


def test_a_time_finds_the_first_record_at_or_after_it(case: Case) -> None:
    for partition, records in case.records.items():
        for index in (0, 3, TRIMMED - 1, TRIMMED, len(records) - 1):
            at = records[index].timestamp_ms
            first = next(one.offset for one in records if one.timestamp_ms >= at)
            assert case.log.offset_at(case.topic, partition, at) == first
        assert case.log.offset_at(case.topic, partition, records[-1].timestamp_ms + 1) == len(records)


def test_what_is_not_there_is_named(case: Case) -> None:
    assert case.log.partition_count(case.topic) == PARTITIONS
    assert case.log.describe(case.topic).spec.partitions == PARTITIONS
    with pytest.raises(RangeError):
        case.log.bounds(case.topic, PARTITIONS)
    with pytest.raises(TopicMissing):
        case.log.partition_count("somebody.else")
    case.log.ping(5.0)


def test_a_trajectory_lies_where_its_key_says(case: Case) -> None:
    for partition, records in case.records.items():
        assert {partition_of(one.key or b"", PARTITIONS) for one in records} == {partition}
