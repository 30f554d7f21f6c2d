"""From a record of the events topic to what is folded, or to why it is not ours."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tracklog.infra.log.partitioner import why_stray
from tracklog.infra.log.port import Record
from tracklog.processors.place import Step
from tracklog.processors.processor import Seen
from tracklog.processors.quarantine import Poison
from tracklog.schemas.codec import decode_event, glance
from tracklog.schemas.errors import ForeignRecord

_OWNERSHIP: Final = frozenset({"OwnershipClaimed", "OwnershipReleased"})
"""Claims move the epoch, and are told by their bodies."""


def wanted_by(reads: Iterable[frozenset[str] | None]) -> frozenset[str] | None:
    """The types whose bodies somebody reads; None for all."""
    names = list(reads)
    if any(one is None for one in names):
        return None
    return _OWNERSHIP.union(*(one for one in names if one is not None))


def step_of(record: Record, partitions: int, wanted: frozenset[str] | None) -> Step | Poison:
    """A record taken up; decoded, unless its type is known and not among those `wanted`."""
    stray = why_stray(record.key, record.partition, partitions)
    if stray:
        return Poison(record, stray)
    if wanted is not None:
        known = glance(record.key, record.value, record.headers)
        if known is not None and known.name not in wanted:
            return Step(known, record.offset)
    try:
        return Step(Seen(decode_event(record.key, record.value, record.headers), record), record.offset)
    except ForeignRecord as error:
        return Poison(record, error.message)
