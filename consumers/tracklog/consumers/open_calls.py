"""Calls that dispatchers have before them, by tool: from what a dispatcher keeps in Redis, or from the log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from tracklog.consumers.dispatch.follow import NEW, Followed, follow
from tracklog.consumers.dispatch.kept import Keeper
from tracklog.consumers.dispatch.slots import EMPTY, Row, entered
from tracklog.infra.log.port import Log
from tracklog.infra.log.ranges import read_range
from tracklog.schemas.codec import decode_event, decode_ledger
from tracklog.schemas.errors import ForeignRecord
from tracklog.schemas.topics import Topics

__all__ = ["OpenCalls", "open_in_log", "open_in_redis"]


class OpenCalls(NamedTuple):
    """Accepted intents of one tool without a result. `queued`: nobody has taken a slot to try (readonly calls take
    none); `begun`: somebody has; `asked`: a person is asked whether it happened."""

    queued: int = 0
    begun: int = 0
    asked: int = 0


def open_in_redis(keeper: Keeper, partitions: int) -> tuple[dict[str, OpenCalls], dict[int, int]] | None:
    """(by tool, the next offset of each partition), None where some partition is not kept. Raises StoreUnavailable."""
    found, positions = dict[str, OpenCalls](), dict[int, int]()
    for partition in range(partitions):
        start = keeper.look(partition)
        if start is None:
            return None
        positions[partition] = start.position
        _count(found, start.known.values(), {one: kept.row for one, kept in start.rows.items()})
    return found, positions


def open_in_log(log: Log, topics: Topics) -> dict[str, OpenCalls]:
    """The same from the log. Blocks for as long as reading all of the events and of the ledger takes."""
    found = dict[str, OpenCalls]()
    for partition in range(log.partition_count(topics.events)):
        known = _followed(log, topics.events, partition)
        wanted = {call.hash for one in known.values() for call in one.calls.values()}
        _count(found, known.values(), _rows(log, topics.attempts, partition, wanted) if wanted else {})
    return found


def _count(found: dict[str, OpenCalls], known: Iterable[Followed], rows: Mapping[bytes, Row]) -> None:
    for one in known:
        for call in one.calls.values():
            before = found.get(call.intent.tool, OpenCalls())
            if call.escalated:
                after = before._replace(asked=before.asked + 1)
            elif rows.get(call.hash, EMPTY).slots:
                after = before._replace(begun=before.begun + 1)
            else:
                after = before._replace(queued=before.queued + 1)
            found[call.intent.tool] = after


def _followed(log: Log, topic: str, partition: int) -> dict[bytes, Followed]:
    known: dict[bytes, Followed] = {}
    bounds = log.bounds(topic, partition)
    for record in read_range(log, topic, partition, bounds.first, bounds.end, bounds=bounds):
        try:
            event = decode_event(record.key, record.value, record.headers)
        except ForeignRecord:
            continue
        assert record.key is not None
        known[record.key] = follow(known.get(record.key, NEW), event)
    return known


def _rows(log: Log, topic: str, partition: int, wanted: set[bytes]) -> dict[bytes, Row]:
    rows: dict[bytes, Row] = {}
    bounds = log.bounds(topic, partition)
    for record in read_range(log, topic, partition, bounds.first, bounds.end, bounds=bounds):
        try:
            read = decode_ledger(record.key, record.value, record.headers)
        except ForeignRecord:
            continue
        intent = read.envelope.intent_hash
        if intent in wanted:
            rows[intent] = entered(rows.get(intent, EMPTY), read, record.timestamp_ms)
    return rows
