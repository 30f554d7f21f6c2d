"""What an owner has taken in and not yet stored, on the in-memory log: several partitions are waited for at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pytest

from tracklog.infra import partition_loop_owner
from tracklog.infra.clock import SystemClock
from tracklog.infra.log.memory import MemoryLog
from tracklog.infra.log.port import Record
from tracklog.infra.log.ranges import append_and_wait
from tracklog.infra.partition_loop import PartitionLoop
from tracklog.infra.settings_sections import LoopSettings
from tracklog.schemas.errors import InvalidProcessor, StoreConflict, StoreUnavailable
from tracklog.schemas.topics import TopicSpec

TOPIC = "t.events"
PARTITIONS = 4


class Owner:
    """Takes in at once, and stores when it is waited for: what it has stored is guarded by the position."""

    def __init__(self) -> None:
        self.stored = dict.fromkeys(range(PARTITIONS), 0)
        self.offsets: dict[int, list[int]] = {partition: [] for partition in self.stored}
        self.held: dict[int, int] = {}
        self.said: list[str] = []
        self.faults: dict[int, list[Exception]] = {}
        """By partition, what goes wrong when it is waited for."""
        self.refused = -1
        """A partition that is not taken in."""

    def restore(self, partition: int) -> int:
        self.held[partition] = self.stored[partition]
        return self.held[partition]

    def fold(self, partition: int, records: Sequence[Record], position: int) -> Callable[[], object]:
        self.said.append(f"fold {partition}")
        if partition == self.refused:
            raise InvalidProcessor("not this one")
        expected = self.held[partition]
        new = [record.offset for record in records if record.offset >= expected]

        def store() -> None:
            self.said.append(f"store {partition}")
            if self.faults.get(partition):
                raise self.faults[partition].pop(0)
            if self.stored[partition] != expected:
                raise StoreConflict("moved")
            self.offsets[partition] += new
            self.stored[partition] = self.held[partition] = max(position, expected)

        return store

    def forget(self, partition: int) -> None:
        self.held.pop(partition, None)


@pytest.fixture
def log() -> Iterator[MemoryLog]:
    made = MemoryLog(now_ms=lambda: 1_700_000_000_000)
    made.create([TopicSpec(TOPIC, PARTITIONS, 1, {})])
    yield made
    made.close()


def fill(log: MemoryLog, count: int) -> dict[int, int]:
    for number in range(count):
        append_and_wait(log, TOPIC, b"key-%d" % number, b"v" * 100, timeout_s=10)
    ends = {partition: log.bounds(TOPIC, partition).end for partition in range(PARTITIONS)}
    assert all(ends.values())
    return ends


def loop_of(log: MemoryLog, owner: Owner) -> PartitionLoop:
    settings = LoopSettings(batch_records_max=1000, poll_timeout_s=0.05)
    return PartitionLoop(log, TOPIC, owner, clock=SystemClock(), settings=settings)


def all_of(ends: dict[int, int]) -> dict[int, list[int]]:
    return {partition: list(range(end)) for partition, end in ends.items()}


def test_all_partitions_are_taken_in_before_the_first_is_waited_for(log: MemoryLog) -> None:
    ends = fill(log, 40)
    owner = Owner()

    assert loop_of(log, owner).drain() == ends

    assert owner.said == [f"{what} {n}" for what in ("fold", "store") for n in range(PARTITIONS)]
    assert owner.offsets == all_of(ends)


def test_no_more_records_are_under_way_than_the_bound(log: MemoryLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tracklog.infra.partition_loop.TOGETHER_RECORDS", 1)
    ends = fill(log, 40)
    owner = Owner()

    loop_of(log, owner).drain()

    assert owner.said == [f"{what} {n}" for n in range(PARTITIONS) for what in ("fold", "store")]
    assert owner.offsets == all_of(ends)


def test_a_conflict_of_one_partition_has_it_read_again_and_the_others_are_stored(log: MemoryLog) -> None:
    ends = fill(log, 40)
    owner = Owner()
    owner.faults = {1: [StoreConflict("moved")]}

    assert loop_of(log, owner).drain() == ends

    assert owner.offsets == all_of(ends)
    assert owner.said.count("store 1") == 2
    assert [owner.said.count(f"store {n}") for n in (0, 2, 3)] == [1, 1, 1]


def test_behind_a_piece_that_was_refused_nothing_is_stored(log: MemoryLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_loop_owner, "BATCH_BYTES_MAX", 250)  # pieces of two records
    ends = fill(log, 40)
    owner = Owner()
    owner.faults = {partition: [StoreConflict("moved")] for partition in range(PARTITIONS)}

    assert loop_of(log, owner).drain() == ends

    assert owner.offsets == all_of(ends), "the second piece alone would leave out the first"


def test_after_an_outage_it_is_taken_in_once_more(log: MemoryLog) -> None:
    ends = fill(log, 40)
    owner = Owner()
    owner.faults = {2: [StoreUnavailable("away"), StoreUnavailable("still away")]}

    assert loop_of(log, owner).drain() == ends

    assert owner.offsets == all_of(ends)
    assert owner.said.count("fold 2") == owner.said.count("store 2") == 3


def test_what_was_taken_in_is_stored_though_another_partition_ends_the_loop(log: MemoryLog) -> None:
    ends = fill(log, 40)
    owner = Owner()
    owner.refused = 2

    with pytest.raises(InvalidProcessor):
        loop_of(log, owner).drain()

    assert owner.stored == {0: ends[0], 1: ends[1], 2: 0, 3: 0}
