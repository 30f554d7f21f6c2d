"""Whom a partition loop hands batches to, and what of them is taken in and not yet stored."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple, Protocol

from tracklog.infra.log.port import Record

__all__ = ["BATCH_BYTES_MAX", "TOGETHER_RECORDS", "Begun", "Owner", "Stored", "batches"]

BATCH_BYTES_MAX: Final = 8 * 1024 * 1024
"""Bytes of values handed to the owner in one step, or one record: bounds what one store call carries."""
TOGETHER_RECORDS: Final = 500
"""Records that are taken in before the first of them are waited for. Where a few come of each partition, no partition
waits for the round trip of another; where many come, a round trip is little beside them."""

Stored = Callable[[], object]
"""Waits until what was taken in is stored. Raises what `Owner.fold` may."""


class Owner(Protocol):
    """What is done with the partitions. Called by the loop's thread only."""

    def restore(self, partition: int) -> int:
        """Ownership begins: the offset to go on from, as stored; 0 when nothing is."""

    def fold(self, partition: int, records: Sequence[Record], position: int) -> Stored | None:
        """Takes records in and stores `position`, the offset to go on from after them, in the same step. Where
        something is given back, the step is under way, and is waited for by it.

        Without records it only confirms or moves the stored position. Raises StoreConflict when that is not
        where this owner left it, StoreUnavailable when nothing can be said: the same call then comes again.
        """

    def forget(self, partition: int) -> None:
        """Ownership has ended, or the stored state moved: drops what is kept in memory."""


class Begun(NamedTuple):
    """A batch that the owner has taken in. `position`: after it."""

    partition: int
    records: Sequence[Record]
    position: int
    stored: Stored


def batches(records: Sequence[Record], position: int) -> Iterator[tuple[Sequence[Record], int]]:
    """Cuts records by BATCH_BYTES_MAX; each piece with the position after it."""
    start, size_bytes = 0, 0
    for index, record in enumerate(records):
        value_bytes = len(record.value or b"")
        if index > start and size_bytes + value_bytes > BATCH_BYTES_MAX:
            yield records[start:index], record.offset
            start, size_bytes = index, 0
        size_bytes += value_bytes
    yield records[start:], position
