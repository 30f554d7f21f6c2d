"""How often checkpoints are taken, and what that costs: from the pauses that the log has, and the failure rate set."""

from __future__ import annotations

import statistics
from collections import deque
from typing import Final, NamedTuple

from tracklog.infra.log.port import Log
from tracklog.infra.log.ranges import read_range
from tracklog.producers.cadence import DAY_S, PAUSE_S, interval_s
from tracklog.producers.checkpoints import EXT_PAUSE
from tracklog.schemas.catalog import HEADER_TYPE
from tracklog.schemas.codec import decode_event
from tracklog.schemas.errors import ForeignRecord
from tracklog.schemas.events import CheckpointTaken

__all__ = ["CadenceReport", "cadence_report", "read_pauses"]

KEPT_MAX: Final = 1000
"""The newest pauses of a partition."""
NAME: Final = CheckpointTaken.__name__.encode()


class CadenceReport(NamedTuple):
    """Seconds. `checkpoints`: how many the pauses are of; 0 when the pause is assumed. `interval_s` is None for never.

    `share_checkpoints`: of the time, spent on checkpoints; `share_again`: spent doing again what a failure lost.
    """

    checkpoints: int
    pause_s: float
    pause_longest_s: float
    failures_a_day: float
    interval_s: float | None
    share_checkpoints: float
    share_again: float


def cadence_report(pauses_s: list[float], failures_a_day: float) -> CadenceReport:
    """For these pauses. Pure. Raises ValueError for a rate that is none."""
    pause_s = statistics.median(pauses_s) if pauses_s else PAUSE_S
    every_s = interval_s(pause_s, failures_a_day)
    never = every_s == float("inf")
    return CadenceReport(
        len(pauses_s),
        pause_s,
        max(pauses_s, default=pause_s),
        failures_a_day,
        None if never else every_s,
        0.0 if never else pause_s / (every_s + pause_s),
        0.0 if never else min(1.0, (every_s / 2 + pause_s) * failures_a_day / DAY_S),
    )


def read_pauses(log: Log, topic: str, trajectory_id: str | None, records_max: int) -> list[float]:
    """Of the newest checkpoints of one trajectory or of all, among the last `records_max` records of each partition.

    Raises what reading a range raises.
    """
    key = None if trajectory_id is None else trajectory_id.encode()
    out: list[float] = []
    for partition in range(log.partition_count(topic)):
        bounds = log.bounds(topic, partition)
        found: deque[float] = deque(maxlen=KEPT_MAX)
        for record in read_range(log, topic, partition, max(bounds.first, bounds.end - records_max), bounds.end):
            if (HEADER_TYPE, NAME) not in record.headers or (key is not None and record.key != key):
                continue
            try:
                event = decode_event(record.key, record.value, record.headers)
            except ForeignRecord:
                continue
            text = event.envelope.ext.get(EXT_PAUSE, "")
            if text.isdecimal():
                found.append(int(text) / 1_000_000)
        out += found
    return out
