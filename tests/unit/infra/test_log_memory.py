"""What the memory log lets a test do that a real one does not: decide the fate of each append."""

from __future__ import annotations

import pytest

from tracklog.infra.log.memory import Fault, MemoryLog
from tracklog.infra.log.port import Position
from tracklog.infra.log.ranges import read_range
from tracklog.schemas.errors import AppendError, AppendRefused, AppendUnknown, LogQueueFull
from tracklog.schemas.topics import TopicSpec

Outcomes = list[Position | AppendError]


@pytest.fixture
def log() -> MemoryLog:
    log = MemoryLog(now_ms=lambda: 7, threaded=False)
    log.create([TopicSpec("t", 1, 1)])
    return log


def append(log: MemoryLog, value: bytes) -> Outcomes:
    outcomes: Outcomes = []

    def delivered(position: Position | None, error: AppendError | None) -> None:
        result = position if position is not None else error
        assert result is not None
        outcomes.append(result)

    log.append("t", b"k", value, (), delivered)
    return outcomes


def values(log: MemoryLog) -> list[bytes | None]:
    return [record.value for record in read_range(log, "t", 0, 0, 100)]


def test_reports_wait_for_deliver_when_there_is_no_thread(log: MemoryLog) -> None:
    first, second = append(log, b"1"), append(log, b"2")
    assert first == second == []
    assert log.deliver(1) == 1
    assert (first, second) == ([Position(0, 0, 7)], [])
    assert log.flush(0) == 0
    assert second == [Position(0, 1, 7)]


@pytest.mark.parametrize(
    ("fault", "kind", "stored"),
    [
        (Fault.STORE_UNKNOWN, AppendUnknown, [b"v"]),
        (Fault.DROP_UNKNOWN, AppendUnknown, []),
        (Fault.REFUSE, AppendRefused, []),
    ],
)
def test_fault_decides_what_is_stored_and_reported(
    log: MemoryLog, fault: Fault, kind: type[AppendError], stored: list[bytes]
) -> None:
    log.faults = lambda topic, key, value: fault
    outcomes = append(log, b"v")
    log.deliver()
    assert isinstance(outcomes[0], kind)
    assert values(log) == stored


def test_delayed_append_is_stored_and_reported_when_released(log: MemoryLog) -> None:
    log.faults = lambda topic, key, value: Fault.DELAY if value == b"late" else None
    late, early = append(log, b"late"), append(log, b"early")
    assert log.flush(0) == 1
    assert (late, early) == ([], [Position(0, 0, 7)])
    assert log.release() == 1
    log.deliver()
    assert late == [Position(0, 1, 7)]
    assert values(log) == [b"early", b"late"]


def test_append_can_be_unknown_first_and_stored_later(log: MemoryLog) -> None:
    log.faults = lambda topic, key, value: Fault.DELAY_UNKNOWN
    outcomes = append(log, b"v")
    log.deliver()
    assert isinstance(outcomes[0], AppendUnknown)
    assert values(log) == []
    log.release()
    log.deliver()
    assert values(log) == [b"v"]
    assert len(outcomes) == 1


def test_queue_is_bounded_and_can_be_said_to_be_full(log: MemoryLog) -> None:
    small = MemoryLog(log.store, now_ms=lambda: 7, threaded=False, queue_records_max=1)
    append(small, b"1")
    with pytest.raises(LogQueueFull):
        append(small, b"2")
    log.faults = lambda topic, key, value: Fault.QUEUE_FULL
    with pytest.raises(LogQueueFull):
        append(log, b"3")
    assert values(log) == [b"1"]


def test_closing_ends_delayed_appends_as_unknown(log: MemoryLog) -> None:
    log.faults = lambda topic, key, value: Fault.DELAY
    outcomes = append(log, b"v")
    log.close()
    assert isinstance(outcomes[0], AppendUnknown)
