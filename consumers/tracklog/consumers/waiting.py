"""Calls that wait for a person, in pages, the oldest first: held ones, and those that may have happened.

From the agenda in Redis, which `tracklog route` folds, each page costs as much as it has rows. From the log it costs a
scan of all of it, whatever the page.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from heapq import merge
from itertools import islice
from typing import Any, Final, NamedTuple

from tracklog.infra.log.port import Log
from tracklog.infra.log.ranges import read_range
from tracklog.infra.redis_client import RedisClient
from tracklog.infra.redis_script import ask
from tracklog.processors.agenda import ASKED, NAME, VERSION, Agenda, TrajectoryAgenda, Waiting, list_of, waiting_of
from tracklog.processors.outbox import Outbox
from tracklog.processors.processor import Seen
from tracklog.processors.redis_store import checkpoint_of
from tracklog.processors.store import Checkpoint
from tracklog.processors.store_keys import StoreKeys
from tracklog.schemas.codec import decode_event
from tracklog.schemas.errors import ForeignRecord, RangeError
from tracklog.schemas.topics import Topics

__all__ = ["Queue", "WaitingPage", "as_of", "row_of", "waiting_in_log"]

_PLACE: Final = re.compile(r"[0-9]{13}-[0-9a-f]{16}")
_AFTER_ALL_OF: Final = b"\xff"
"""No text in UTF-8 has this byte, so it is behind every member that begins with a place."""


class WaitingPage(NamedTuple):
    """`next` is the cursor of the page behind this one, None at the end. `total`: how many there are in all.
    `as_of`: how far the log was folded or read for it, the next offset of every partition."""

    rows: list[Waiting]
    next: str | None
    total: int
    as_of: Mapping[int, int]


class Queue:
    """What the agenda of one installation says. Its methods block, and raise StoreUnavailable, StoreError."""

    def __init__(self, client: RedisClient, prefix: str, partitions: int) -> None:
        self._client = client
        self._keys = StoreKeys(prefix, NAME, VERSION)
        self._partitions = partitions

    def page(self, kind: str, *, tenant: str | None, cursor: str | None, limit: int) -> WaitingPage:
        """At most `limit` of a kind (ASKED, DOUBTED) behind the cursor. Raises RangeError for what is none."""
        after = b"-" if cursor is None else b"(" + _checked(cursor).encode() + _AFTER_ALL_OF
        keys = [self._keys.key(partition, list_of(kind, tenant)) for partition in range(self._partitions)]
        pages = [("ZRANGEBYLEX", key, after, "+", "LIMIT", 0, limit + 1) for key in keys]
        counts = [("ZCARD", key) for key in keys]
        marks = [("HMGET", self._keys.checkpoint(one), *Checkpoint._fields) for one in range(self._partitions)]
        found = ask(
            self._client, [*marks, *pages, *counts]
        )  # how far it is folded first: never more than what is shown
        marked, members, counted = (found[n * len(keys) : (n + 1) * len(keys)] for n in range(3))
        folded = [checkpoint_of(answer) for answer in marked]
        positions = {partition: 0 if one is None else one.position for partition, one in enumerate(folded)}
        rows = [waiting_of(member) for member in islice(merge(*members), limit + 1)]
        return _page(rows, limit, sum(counted), positions)


def waiting_in_log(
    log: Log, topics: Topics, kind: str, *, tenant: str | None, cursor: str | None, limit: int
) -> WaitingPage:
    """The same from the log. Blocks for as long as reading all of it takes."""
    after = "" if cursor is None else _checked(cursor)
    topic = topics.events
    ends = {partition: log.bounds(topic, partition).end for partition in range(log.partition_count(topic))}
    found = [one for one in _open(log, topic, kind, ends) if tenant in (None, one.tenant)]
    behind = sorted((one for one in found if one.place > after), key=lambda one: one.place)
    return _page(behind[: limit + 1], limit, len(found), ends)


def as_of(page: WaitingPage) -> dict[str, int]:
    """As the API shows it."""
    return {str(partition): offset for partition, offset in page.as_of.items()}


def row_of(one: Waiting) -> dict[str, Any]:
    """As the API and `--json` show it."""
    row = {
        "trajectory_id": one.trajectory_id,
        "tenant": one.tenant,
        "call_id": one.call_id,
        "tool": one.tool,
        "argument_hash": one.argument_hash,
        "reason": one.reason,
    }
    if one.kind != ASKED:
        return {**row, "intent_hash": one.hash, "since_ms": one.since_ms}
    return {
        **row,
        "request_hash": one.hash,
        "asked_ms": one.since_ms,
        "expires_us": one.expires_us,
        "may_approve": list(one.may_approve),
        "requester_may": one.requester_may,
        "asked_before": one.step,
        "asked_after": one.then,
    }


def _open(log: Log, topic: str, kind: str, ends: Mapping[int, int]) -> Iterable[Waiting]:
    agenda = Agenda()
    for partition, end in ends.items():
        states = dict[bytes, TrajectoryAgenda]()
        bounds = log.bounds(topic, partition)
        for record in read_range(log, topic, partition, bounds.first, end, bounds=bounds):
            try:
                event = decode_event(record.key, record.value, record.headers)
            except ForeignRecord:
                continue
            key = event.envelope.trajectory_id
            state = states.get(key.encode(), agenda.start(key))
            states[key.encode()] = agenda.apply(state, Seen(event, record))._replace(outbox=Outbox())
        for state in states.values():
            yield from (one for one in state.waiting.values() if one.kind == kind)


def _page(rows: list[Waiting], limit: int, total: int, positions: Mapping[int, int]) -> WaitingPage:
    return WaitingPage(rows[:limit], rows[limit - 1].place if len(rows) > limit else None, total, positions)


def _checked(cursor: str) -> str:
    if _PLACE.fullmatch(cursor) is None:
        raise RangeError(f"{cursor!r} is no cursor", hint="use the one that the page before gave")
    return cursor
