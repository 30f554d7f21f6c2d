"""The loop under every owner of partitions, on the in-memory log: ownership, conflicts, outages, bounds, liveness."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence

import pytest

from tracklog.infra import partition_loop, partition_loop_owner
from tracklog.infra.clock import ManualClock, SystemClock
from tracklog.infra.lines import about_now
from tracklog.infra.log.memory import MemoryLog
from tracklog.infra.log.memory_store import MemoryReader
from tracklog.infra.log.port import Record
from tracklog.infra.log.ranges import append_and_wait
from tracklog.infra.partition_loop import PartitionLoop
from tracklog.infra.partition_loop_progress import Progress
from tracklog.infra.settings_sections import LoopSettings
from tracklog.infra.stack.process import wait_until
from tracklog.schemas.errors import ClientFatal, LogUnavailable, StoreConflict, StoreUnavailable
from tracklog.schemas.topics import TopicSpec

TOPIC = "t.events"
QUICK = LoopSettings(batch_records_max=10, batch_wait_s=0.0, poll_timeout_s=0.05)


class Ledger:
    """An owner that stores positions and offsets, and can be told what goes wrong next."""

    def __init__(self) -> None:
        self.stored: dict[int, int] = {}
        self.offsets: dict[int, list[int]] = {}
        self.owned: set[int] = set()
        self.faults: list[Exception] = []
        self.batches: list[tuple[int, int, int]] = []
        self.forgotten: list[int] = []
        self.conflict_at = -1
        self.always: Exception | None = None

    def restore(self, partition: int) -> int:
        self._fail()
        self.owned.add(partition)
        return self.stored.get(partition, 0)

    def fold(self, partition: int, records: Sequence[Record], position: int) -> None:
        assert partition in self.owned, "folded without ownership"
        self._fail()
        if self.always is not None:
            raise self.always
        if len(self.batches) == self.conflict_at:
            self.conflict_at = -1
            raise StoreConflict("moved")
        self.batches.append((partition, len(records), position))
        self.offsets.setdefault(partition, []).extend(record.offset for record in records)
        self.stored[partition] = position

    def forget(self, partition: int) -> None:
        self.owned.discard(partition)
        self.forgotten.append(partition)

    def _fail(self) -> None:
        if self.faults:
            raise self.faults.pop(0)


@pytest.fixture
def log() -> Iterator[MemoryLog]:
    made = MemoryLog(now_ms=lambda: 1_700_000_000_000)
    made.create([TopicSpec(TOPIC, 2, 1, {})])
    yield made
    made.close()


def fill(log: MemoryLog, count: int) -> dict[int, int]:
    """Appends records of many keys; returns the ends."""
    for number in range(count):
        append_and_wait(log, TOPIC, b"key-%d" % number, b"v" * 100, timeout_s=10)
    return {p: log.bounds(TOPIC, p).end for p in range(2)}


def loop_of(log: MemoryLog, owner: Ledger, settings: LoopSettings = QUICK, **bounds: float) -> PartitionLoop:
    return PartitionLoop(log, TOPIC, owner, clock=SystemClock(), settings=settings, **bounds)


def in_order(ends: dict[int, int]) -> dict[int, list[int]]:
    return {p: list(range(end)) for p, end in ends.items() if end}


def test_draining_reads_every_record_once_in_order_to_the_end_at_its_start(log: MemoryLog) -> None:
    ends = fill(log, 50)
    owner = Ledger()

    assert loop_of(log, owner).drain() == ends

    assert owner.offsets == in_order(ends)
    assert owner.stored == ends
    assert owner.owned == set(), "ownership ends with the draining"


def test_draining_stops_exactly_at_the_offsets_it_is_given(log: MemoryLog) -> None:
    ends = fill(log, 50)
    until = {0: ends[0] // 2, 1: 0}
    owner = Ledger()

    assert loop_of(log, owner).drain(until) == until

    assert owner.offsets == in_order(until)


def test_draining_one_partition_leaves_the_others(log: MemoryLog) -> None:
    ends = fill(log, 20)
    owner = Ledger()

    assert loop_of(log, owner).drain(partitions=[0]) == {0: ends[0]}

    assert set(owner.offsets) == {0}


def test_draining_again_finds_nothing_to_do(log: MemoryLog) -> None:
    fill(log, 20)
    owner = Ledger()
    loop_of(log, owner).drain()
    before = list(owner.batches)

    loop_of(log, owner).drain()

    assert owner.batches == before


def test_a_batch_is_bounded_in_records(log: MemoryLog) -> None:
    fill(log, 60)
    owner = Ledger()

    loop_of(log, owner).drain()

    assert max(count for _, count, _ in owner.batches) <= QUICK.batch_records_max


def test_a_batch_is_bounded_in_bytes(log: MemoryLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_loop_owner, "BATCH_BYTES_MAX", 250)
    ends = fill(log, 20)
    owner = Ledger()

    loop_of(log, owner).drain()

    assert max(count for _, count, _ in owner.batches) == 2
    assert owner.offsets == in_order(ends)


def test_a_conflict_restores_and_reads_again_from_what_is_stored(log: MemoryLog) -> None:
    ends = fill(log, 40)
    owner = Ledger()
    owner.conflict_at = 3

    loop_of(log, owner).drain()

    assert owner.offsets == in_order(ends)
    assert len(owner.forgotten) == 3, "once for the conflict, twice at the end"


def test_conflicts_that_never_move_are_an_error_and_no_endless_loop(log: MemoryLog) -> None:
    fill(log, 10)
    owner = Ledger()
    loop = loop_of(log, owner)
    owner.always = StoreConflict("stuck")

    with pytest.raises(StoreConflict, match="stuck"):
        loop.drain()


@pytest.mark.parametrize("error", [StoreUnavailable("away"), LogUnavailable("away")])
def test_an_outage_is_waited_for_and_nothing_is_lost(log: MemoryLog, error: Exception) -> None:
    ends = fill(log, 30)
    owner = Ledger()
    owner.faults = [error] * 3
    told: list[Exception | None] = []
    loop = loop_of(log, owner)
    loop.on_outage = told.append

    loop.drain()

    assert owner.offsets == in_order(ends)
    assert told == [error, None], "once when it begins and once when it is over"


def test_an_outage_longer_than_the_bound_ends_the_loop(log: MemoryLog) -> None:
    fill(log, 5)
    owner = Ledger()
    owner.always = StoreUnavailable("away")

    with pytest.raises(StoreUnavailable):
        loop_of(log, owner, outage_s_max=0.2).drain()


def test_a_log_that_makes_no_progress_is_an_error_and_no_endless_draining(
    log: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(log, 5)
    monkeypatch.setattr(MemoryReader, "poll", lambda *_: [])

    with pytest.raises(LogUnavailable, match="came to a stop"):
        loop_of(log, Ledger(), outage_s_max=0.2).drain()


def test_a_stop_ends_the_wait_for_an_outage(log: MemoryLog) -> None:
    fill(log, 5)
    owner, stop = Ledger(), threading.Event()
    owner.always = StoreUnavailable("away")
    timer = threading.Timer(0.3, stop.set)
    timer.start()

    with pytest.raises(StoreUnavailable):
        loop_of(log, owner).run("t.group", stop)

    assert stop.is_set()


def test_a_fatal_error_leaves_the_loop_at_once(log: MemoryLog) -> None:
    fill(log, 5)
    owner = Ledger()
    owner.always = ClientFatal("finished")

    with pytest.raises(ClientFatal) as caught:
        loop_of(log, owner).run("t.group", threading.Event())

    assert caught.value.exit_code == 70


class Following:
    """A loop that runs as a group member in a thread."""

    def __init__(self, loop: PartitionLoop) -> None:
        self.stop = threading.Event()
        self.returned: dict[int, int] | None = None
        self.thread = threading.Thread(target=self._run, args=(loop,), daemon=True)
        self.thread.start()

    def _run(self, loop: PartitionLoop) -> None:
        self.returned = loop.run("t.group", self.stop)

    def end(self) -> None:
        self.stop.set()
        self.thread.join(20)
        assert not self.thread.is_alive()


def test_a_member_that_joins_takes_its_share_and_each_record_is_folded_once(log: MemoryLog) -> None:
    fill(log, 20)
    owner, joined = Ledger(), Ledger()
    joined.stored, joined.offsets = owner.stored, owner.offsets
    first = Following(loop_of(log, owner))
    assert wait_until(lambda: owner.owned == {0, 1}, 20)
    second = Following(loop_of(log, joined))
    assert wait_until(lambda: len(owner.owned) == len(joined.owned) == 1, 20)

    ends = fill(log, 20)

    assert wait_until(lambda: owner.stored == ends, 20)
    first.end()
    assert wait_until(lambda: joined.owned == {0, 1}, 20)
    second.end()
    assert owner.offsets == in_order(ends)
    assert owner.owned == joined.owned == set()


def test_the_positions_at_the_end_outlive_the_ownership(log: MemoryLog) -> None:
    ends = fill(log, 20)
    owner = Ledger()
    running = Following(loop_of(log, owner))
    assert wait_until(lambda: owner.stored == ends, 20)

    running.end()

    assert (running.returned, owner.owned) == (ends, set())


def test_what_was_read_before_a_revocation_and_not_folded_is_left_to_the_next_owner(log: MemoryLog) -> None:
    ends = fill(log, 10)
    owner = Ledger()
    loop = loop_of(log, owner, LoopSettings(batch_records_max=100, batch_wait_s=5.0, poll_timeout_s=0.05))
    loop._took_s = 20.0  # as after a batch that took long
    running = Following(loop)
    assert wait_until(lambda: bool(loop._pending), 20), "the batch waits to be filled"

    running.end()

    assert owner.owned == set()
    follower = Ledger()
    follower.stored, follower.offsets = owner.stored, owner.offsets
    loop_of(log, follower).drain()
    assert owner.offsets == in_order(ends)


@pytest.mark.parametrize("took_s", [0.0, 0.3])
def test_a_batch_is_waited_for_a_part_of_what_the_one_before_took(log: MemoryLog, took_s: float) -> None:
    class Slow(Ledger):
        def fold(self, partition: int, records: Sequence[Record], position: int) -> None:
            super().fold(partition, records, position)
            if records:
                threading.Event().wait(took_s)

    owner = Slow()
    loop = loop_of(log, owner, LoopSettings(batch_records_max=100, batch_wait_s=60.0, poll_timeout_s=0.05))
    running = Following(loop)

    def is_folded(count: int) -> bool:
        return wait_until(lambda: sum(map(len, owner.offsets.values())) == count, 20)

    fill(log, 4)
    assert is_folded(4)
    fill(log, 4)  # were the bound the wait, this would take a minute
    assert is_folded(8)

    assert took_s <= loop._took_s < 20
    running.end()


def test_an_idle_partition_is_confirmed_now_and_then(log: MemoryLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_loop, "IDLE_FOLD_S", 0.1)
    owner = Ledger()
    running = Following(loop_of(log, owner))

    assert wait_until(lambda: (0, 0, 0) in owner.batches and (1, 0, 0) in owner.batches, 20)

    running.end()


def test_a_prefix_that_was_trimmed_under_the_position_is_passed_and_counted(log: MemoryLog) -> None:
    ends = fill(log, 40)
    log.delete_records(TOPIC, {0: 5})
    owner = Ledger()
    loop = loop_of(log, owner)

    loop.drain()

    assert loop.trimmed == {0: 5}
    assert owner.offsets[0] == list(range(5, ends[0]))


def test_a_partition_that_is_behind_and_does_not_move_makes_the_loop_not_alive() -> None:
    clock = ManualClock()
    progress = Progress(clock, stall_timeout_s=10)
    progress.got_on([0, 1])
    clock.advance(9)
    progress.polled()
    progress.got_on([0])
    assert progress.alive()

    clock.advance(2)
    progress.polled()

    assert not progress.alive()
    assert progress.stalled() == [1]
    progress.gave_up(1)
    assert progress.alive()


def test_a_loop_that_does_not_come_round_is_not_alive() -> None:
    clock = ManualClock()
    progress = Progress(clock, stall_timeout_s=10)
    assert progress.alive()

    clock.advance(10.5)

    assert not progress.alive()
    assert progress.stalled() == []
    progress.polled()
    assert progress.alive()


def test_an_idle_loop_stays_alive(log: MemoryLog) -> None:
    fill(log, 4)
    owner = Ledger()
    settings = LoopSettings(batch_records_max=10, batch_wait_s=0.0, poll_timeout_s=0.02, stall_timeout_s=0.4)
    loop = loop_of(log, owner, settings)
    running = Following(loop)
    assert wait_until(lambda: owner.stored == {p: log.bounds(TOPIC, p).end for p in range(2)}, 20)
    began = SystemClock().monotonic_s()

    assert wait_until(lambda: SystemClock().monotonic_s() - began > 1.0, 5)

    assert loop.progress.alive()
    running.end()


def test_what_is_said_while_a_batch_is_taken_in_is_about_it(log: MemoryLog) -> None:
    fill(log, 3)
    owner, said = Ledger(), list[object]()
    loop = loop_of(log, owner)
    loop.on_outage = lambda error: said.append(dict(about_now()))
    owner.restore = _failing_later(owner)  # type: ignore[method-assign, assignment]

    loop.drain(partitions=[0])

    assert said[0] == {"topic": TOPIC, "partition": 0, "offset": 0}


def _failing_later(owner: Ledger) -> Callable[[int], int]:
    """Its first fold fails once the partition is owned."""
    restore = owner.restore

    def restored(partition: int) -> int:
        position = restore(partition)
        owner.faults.append(StoreUnavailable("away"))
        return position

    return restored
