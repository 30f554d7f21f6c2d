"""Checks of offsets against what a partition keeps, with one wording for every log."""

from __future__ import annotations

from tracklog.infra.log.port import Bounds
from tracklog.schemas.errors import OffsetTrimmed, RangeError


def check_partition(topic: str, partition: int, count: int) -> None:
    if not 0 <= partition < count:
        raise RangeError(f"{topic} has no partition {partition}", hint=f"it has partitions 0 to {count - 1}")


def check_position(topic: str, partition: int, offset: int, bounds: Bounds) -> None:
    """OffsetTrimmed unless `offset` is a place to read from: first to end, the end included."""
    if not bounds.first <= offset <= bounds.end:
        raise offset_trimmed(topic, partition, offset, bounds)


def offset_trimmed(topic: str, partition: int, offset: int, bounds: Bounds | None = None) -> OffsetTrimmed:
    kept = f"; kept are {bounds.first} to {bounds.end} (end exclusive)" if bounds is not None else ""
    return OffsetTrimmed(
        f"offset {offset} of {topic}, partition {partition}, is not in the log{kept}",
        hint="it was trimmed, or the topic was made anew: choose a start that is kept",
    )


def check_delete(topic: str, partition: int, before: int, bounds: Bounds) -> None:
    """RangeError for an offset that is none, or beyond the end; below the first there is nothing to do."""
    if not 0 <= before <= bounds.end:
        raise RangeError(
            f"records of {topic}, partition {partition}, cannot be deleted below offset {before}",
            hint=f"the partition ends at {bounds.end}",
        )
