"""From a record of the events topic to what is folded, or to why it is not ours."""

from __future__ import annotations

from tracklog.infra.log.partitioner import why_stray
from tracklog.infra.log.port import Record
from tracklog.processors.processor import Seen
from tracklog.processors.quarantine import Poison
from tracklog.schemas.codec import decode_event
from tracklog.schemas.errors import ForeignRecord


def decoded(record: Record, partitions: int) -> Seen | Poison:
    stray = why_stray(record.key, record.partition, partitions)
    if stray:
        return Poison(record, stray)
    try:
        return Seen(decode_event(record.key, record.value, record.headers), record)
    except ForeignRecord as error:
        return Poison(record, error.message)
