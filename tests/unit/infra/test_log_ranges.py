from __future__ import annotations

import pytest

from tracklog.infra.log.memory import Fault, MemoryLog
from tracklog.infra.log.open import open_log
from tracklog.infra.log.ranges import ResolvedRange, append_and_wait, read_range, resolve_range
from tracklog.schemas.errors import AppendRefused, AppendUnknown, RangeError, SettingsError
from tracklog.schemas.topics import TopicSpec

HOUR_MS = 3_600_000
START_MS = 1_772_366_400_000  # 2026-03-01T12:00:00Z


@pytest.fixture
def log() -> MemoryLog:
    """Ten records, one an hour; the first three are trimmed."""
    now_ms = iter(range(START_MS, START_MS + 100 * HOUR_MS, HOUR_MS))
    log = MemoryLog(now_ms=lambda: next(now_ms))
    log.create([TopicSpec("t", 1, 1), TopicSpec("empty", 1, 1)])
    for number in range(10):
        append_and_wait(log, "t", b"k", str(number).encode(), timeout_s=5)
    log.delete_records("t", {0: 3})
    return log


@pytest.mark.parametrize(
    ("frm", "to", "resolved"),
    [
        ("beginning", "end", ResolvedRange(3, 10, False, False)),
        ("4", "6", ResolvedRange(4, 6, False, False)),
        ("0", "5", ResolvedRange(3, 5, True, False)),
        ("0", "2", ResolvedRange(3, 3, True, True)),
        ("5", "99", ResolvedRange(5, 10, False, True)),
        ("50", "99", ResolvedRange(10, 10, True, True)),
        ("-2", "end", ResolvedRange(8, 10, False, False)),
        ("-100", "-9", ResolvedRange(3, 3, True, True)),
        ("-7", "-7", ResolvedRange(3, 3, False, False)),
        ("2026-03-01T17:00:00Z", "2026-03-01T19:30:00", ResolvedRange(5, 8, False, False)),
        ("2026-03-01T18:00:00+01:00", "end", ResolvedRange(5, 10, False, False)),
        ("2030-01-01", "end", ResolvedRange(10, 10, False, False)),
    ],
)
def test_bounds_are_resolved_against_what_is_kept(log: MemoryLog, frm: str, to: str, resolved: ResolvedRange) -> None:
    assert resolve_range(log, "t", 0, frm, to) == resolved


@pytest.mark.parametrize(
    ("frm", "to", "said"),
    [("6", "4", "behind its end"), ("yesterday", "end", "'yesterday'"), ("1.5", "end", "'1.5'"), ("", "end", "''")],
)
def test_range_that_makes_no_sense_says_why(log: MemoryLog, frm: str, to: str, said: str) -> None:
    with pytest.raises(RangeError, match=said):
        resolve_range(log, "t", 0, frm, to)


def test_empty_partition_has_empty_ranges(log: MemoryLog) -> None:
    assert resolve_range(log, "empty", 0, "beginning", "end") == ResolvedRange(0, 0, False, False)
    assert list(read_range(log, "empty", 0, 0, 100)) == []


@pytest.mark.parametrize("batch", [1, 2, 100])
def test_range_reads_exactly_what_is_kept_of_it(log: MemoryLog, batch: int) -> None:
    for start in range(12):
        for end in range(12):
            offsets = [record.offset for record in read_range(log, "t", 0, start, end, batch=batch)]
            assert offsets == [offset for offset in range(3, 10) if start <= offset < end]


def test_records_trimmed_while_they_are_read_are_passed(log: MemoryLog) -> None:
    reading = read_range(log, "t", 0, 0, 10, batch=2)
    assert [next(reading).offset for _ in range(2)] == [3, 4]
    log.delete_records("t", {0: 8})
    assert [record.offset for record in reading] == [8, 9]


@pytest.mark.parametrize(
    ("fault", "error"),
    [(Fault.REFUSE, AppendRefused), (Fault.DELAY, AppendUnknown), (Fault.DROP_UNKNOWN, AppendUnknown)],
)
def test_waiting_for_an_append_raises_what_became_of_it(log: MemoryLog, fault: Fault, error: type[Exception]) -> None:
    log.faults = lambda topic, key, value: fault
    with pytest.raises(error):
        append_and_wait(log, "t", b"k", b"v", timeout_s=0.05)


@pytest.mark.parametrize("url", ["", "redis://h", "kafka:h:1", "/a/path", "sqlite:", "sqlite", "KAFKA://h:9092"])
def test_unknown_log_names_the_known_ones(url: str) -> None:
    with pytest.raises(SettingsError, match=r"sqlite:"):
        open_log(url)


def test_memory_logs_of_one_name_are_one_log() -> None:
    one, other = open_log("memory:shared-by-name"), open_log("memory:shared-by-name")
    one.create([TopicSpec("t", 1, 1)])
    assert other.partition_count("t") == 1
    assert open_log("memory:").create([TopicSpec("t", 1, 1)]) == ["t"]
