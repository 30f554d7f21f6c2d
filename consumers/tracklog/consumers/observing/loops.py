"""How far a partition loop is behind its topic, and for how long the log still keeps what it has not read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tracklog.infra.clock import Clock
from tracklog.infra.log.lag import lags
from tracklog.infra.log.port import Log
from tracklog.infra.metrics import Sample
from tracklog.infra.partition_loop import PartitionLoop

__all__ = ["Retention", "loop_samples"]

LOOKED_UP_S: Final = 30.0
"""Seconds for which a topic's retention is taken to stay as it is: who raises it wants to see that it helped."""


class Retention:
    """For how long topics keep records."""

    def __init__(self, log: Log, clock: Clock) -> None:
        self._log = log
        self._clock = clock
        self._known: dict[str, tuple[float, float | None]] = {}

    def seconds(self, topic: str) -> float | None:
        """None for one that keeps them for ever. Raises TopicMissing, LogUnavailable."""
        now_s = self._clock.monotonic_s()
        asked_s, kept_s = self._known.get(topic, (None, None))
        if asked_s is None or now_s - asked_s > LOOKED_UP_S:
            given = int(self._log.describe(topic).spec.config.get("retention.ms", "-1"))
            kept_s = given / 1000 if given >= 0 else None
            self._known[topic] = (now_s, kept_s)
        return kept_s


def loop_samples(log: Log, loop: PartitionLoop, processor: str, clock: Clock, retention: Retention) -> Iterator[Sample]:
    """Lag by offset and by time of the partitions that are owned. Raises LogUnavailable, TopicMissing."""
    now_us, kept_s = clock.now_us(), retention.seconds(loop.topic)
    found = lags(log, loop.topic, dict(loop.stored()), clock)
    for partition, lag in sorted(found.items()):
        where = {"topic": loop.topic, "partition": str(partition), "processor": processor}
        yield Sample("tracklog_lag_records", lag.offsets, where)
        seconds = lag.seconds(now_us)
        if seconds is None:
            continue
        yield Sample("tracklog_lag_seconds", seconds, where)
        if kept_s is not None:
            yield Sample("tracklog_retention_left_seconds", max(0.0, kept_s - seconds), where)
