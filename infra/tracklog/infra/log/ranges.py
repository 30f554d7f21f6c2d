"""Offset ranges of a partition: how people write them, reading one, and one append waited for."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final, NamedTuple

from tracklog.infra.log.port import Bounds, Headers, Log, Position, Record
from tracklog.schemas.errors import AppendError, AppendUnknown, LogUnavailable, OffsetTrimmed, RangeError

BATCH_RECORDS: Final = 1_000
READ_TIMEOUT_S: Final = 10.0

_NUMBER: Final = re.compile(r"-?\d+\Z")


class ResolvedRange(NamedTuple):
    """Offsets `start` to `end`, end exclusive. A bound was clipped when what was asked for is not (or no
    longer, or not yet) in the log: what is left out is to be reported, never passed over."""

    start: int
    end: int
    clipped_start: bool
    clipped_end: bool


def resolve_range(log: Log, topic: str, partition: int, frm: str, to: str) -> ResolvedRange:
    """Offsets for two bounds as people write them.

    A bound is `beginning`, `end`, an offset, `-N` (N offsets before the end), or an ISO 8601 time (UTC where
    it names no zone): the first record appended at or after it. All are resolved against the present end, the
    last stable offset. Raises RangeError for a bound that is none of these and for a start behind the end.
    """
    bounds = log.bounds(topic, partition)
    start = _resolve(log, topic, partition, frm, bounds)
    end = _resolve(log, topic, partition, to, bounds)
    if start > end:
        raise RangeError(f"the range {frm} to {to} starts at offset {start}, behind its end {end}")
    kept_start, kept_end = _clip(start, bounds), _clip(end, bounds)
    return ResolvedRange(kept_start, kept_end, kept_start != start, kept_end != end)


def read_range(
    log: Log,
    topic: str,
    partition: int,
    start: int,
    end: int,
    *,
    batch: int = BATCH_RECORDS,
    timeout_s: float = READ_TIMEOUT_S,
    bounds: Bounds | None = None,
) -> Iterator[Record]:
    """The records from `start` to `end` (exclusive) that are in the log now, in order. `bounds`: as the log has just
    given them, when somebody has asked.

    Holes (transactions, retention) are passed. Nothing is waited for that cannot come: the end is clipped to
    the last stable offset. LogUnavailable when the log makes no progress for `timeout_s`.
    """
    bounds = bounds if bounds is not None else log.bounds(topic, partition)
    start, end = max(start, bounds.first), min(end, bounds.end)
    if start >= end:
        return
    reader = log.reader(topic, {partition: start})
    try:
        deadline = time.monotonic() + timeout_s
        position = start
        while position < end:
            try:
                records = reader.poll(min(batch, end - position), max(0.0, deadline - time.monotonic()))
            except OffsetTrimmed:
                first = log.bounds(topic, partition).first
                if first <= position:
                    raise
                reader.seek(partition, first)
                records = []
            for record in records:
                if record.offset >= end:
                    return
                yield record
            if reader.position(partition) != position:
                position = reader.position(partition)
                deadline = time.monotonic() + timeout_s
            elif time.monotonic() >= deadline:
                raise LogUnavailable(
                    f"reading {topic}, partition {partition}, came to a stop at offset {position} of {end}",
                    hint=f"no progress for {timeout_s:g} s: is {log.url} well?",
                )
    finally:
        reader.close()


def append_and_wait(
    log: Log, topic: str, key: bytes, value: bytes, headers: Headers = (), *, timeout_s: float
) -> Position:
    """Appends one record and waits for its report. Raises what `Log.append` raises, the AppendError reported,
    and AppendUnknown when no report came within the bound."""
    reported = threading.Event()
    outcome: list[Position | AppendError] = []

    def delivered(position: Position | None, error: AppendError | None) -> None:
        result = position if position is not None else error
        assert result is not None
        outcome.append(result)
        reported.set()

    log.append(topic, key, value, headers, delivered)
    if not reported.wait(timeout_s):
        raise AppendUnknown(f"no report of an append to {topic} came from {log.url} within {timeout_s:g} s")
    if isinstance(outcome[0], AppendError):
        raise outcome[0]
    return outcome[0]


def _resolve(log: Log, topic: str, partition: int, bound: str, bounds: Bounds) -> int:
    if bound == "beginning":
        return bounds.first
    if bound == "end":
        return bounds.end
    if _NUMBER.match(bound):
        number = int(bound)
        return bounds.end + number if bound.startswith("-") else number
    return log.offset_at(topic, partition, _timestamp_ms(bound))


def _timestamp_ms(text: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise RangeError(
            f"{text!r} is no bound of a range",
            hint="use beginning, end, an offset, -N for the last N, or a time such as 2026-03-01T12:00:00Z",
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1000)


def _clip(offset: int, bounds: Bounds) -> int:
    return min(max(offset, bounds.first), bounds.end)
