"""How far somebody who reads a topic is behind it, in records and in time."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from typing import Final, NamedTuple

from tracklog.infra.clock import Clock
from tracklog.infra.log.port import Log

__all__ = ["Lag", "lags"]

READ_S_MAX: Final = 2.0
POLL_S: Final = 0.1
RECORDS_MAX: Final = 500


class Lag(NamedTuple):
    """`offsets` from the position to the end (holes count). `oldest_ms`: append time of the first record at or after
    the position, milliseconds since 1970; None when there is none, or it could not be read in time."""

    offsets: int
    oldest_ms: int | None

    def seconds(self, now_us: int) -> float | None:
        """Age of the oldest record that was not taken in, 0 without any; None when it is not known. Never negative:
        the clock of the log may be ahead."""
        if self.offsets == 0:
            return 0.0
        return None if self.oldest_ms is None else max(0.0, now_us / 1_000_000 - self.oldest_ms / 1000)


def lags(log: Log, topic: str, positions: Mapping[int, int], clock: Clock) -> dict[int, Lag]:
    """By partition. Raises LogUnavailable, TopicMissing."""
    starts: dict[int, int] = {}
    found: dict[int, Lag] = {}
    for partition, position in positions.items():
        bounds = log.bounds(topic, partition)
        found[partition] = Lag(max(0, bounds.end - position), None)
        if found[partition].offsets:
            starts[partition] = max(position, bounds.first)
    for partition, oldest_ms in _oldest(log, topic, starts, clock).items():
        found[partition] = found[partition]._replace(oldest_ms=oldest_ms)
    return found


def _oldest(log: Log, topic: str, starts: Mapping[int, int], clock: Clock) -> dict[int, int]:
    """Append time of the first record from each start on, of those that come in time."""
    found: dict[int, int] = {}
    if not starts:
        return found
    deadline_s = clock.monotonic_s() + READ_S_MAX
    with closing(log.reader(topic, starts)) as reader:
        while len(found) < len(starts) and clock.monotonic_s() < deadline_s:
            for record in reader.poll(RECORDS_MAX, POLL_S):
                found.setdefault(record.partition, record.timestamp_ms)
    return found
