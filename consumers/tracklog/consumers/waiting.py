"""Calls that wait for a person, in pages, the oldest first: held ones, and those that may have happened.

From the agenda in Redis, which `tracklog route` folds, each page costs as much as it has rows. From the log it costs a
scan of all of it, whatever the page.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from heapq import merge
from itertools import islice
from typing import Any, Final, NamedTuple

from tracklog.infra.log.port import Log
from tracklog.infra.log.ranges import read_range
from tracklog.infra.redis_client import RedisClient
from tracklog.infra.redis_script import ask
from tracklog.processors.agenda import ASKED, Agenda, TrajectoryAgenda, Waiting, list_of, waiting_of
from tracklog.processors.outbox import Outbox
from tracklog.processors.processor import Seen
from tracklog.processors.redis_store import LiveKeys
from tracklog.schemas.codec import decode_event
from tracklog.schemas.errors import ForeignRecord, RangeError
from tracklog.schemas.topics import Topics

__all__ = ["WaitingPage", "row_of", "waiting_in_log", "waiting_in_redis"]

_PLACE: Final = re.compile(r"[0-9]{13}-[0-9a-f]{16}")
_AFTER_ALL_OF: Final = b"\xff"
"""No text in UTF-8 has this byte, so it is behind every member that begins with a place."""


class WaitingPage(NamedTuple):
    """`next` is the cursor of the page behind this one, None at the end. `total`: how many there are in all."""

    rows: list[Waiting]
    next: str | None
    total: int


def waiting_in_redis(
    client: RedisClient, live: LiveKeys, kind: str, *, tenant: str | None, cursor: str | None, limit: int
) -> WaitingPage:
    """At most `limit` of a kind (ASKED, DOUBTED) behind the cursor, as the agenda has them. Blocks. Raises RangeError
    for what is no cursor, StoreUnavailable, StoreError."""
    after = b"-" if cursor is None else b"(" + _checked(cursor).encode() + _AFTER_ALL_OF
    keys = [live.keys.key(partition, list_of(kind, tenant)) for partition in range(live.partitions)]
    pages = [("ZRANGEBYLEX", key, after, "+", "LIMIT", 0, limit + 1) for key in keys]
    found = ask(client, [*pages, *(("ZCARD", key) for key in keys)])
    members = islice(merge(*found[: len(keys)]), limit + 1)
    return _page([waiting_of(member) for member in members], limit, sum(found[len(keys) :]))


def waiting_in_log(
    log: Log, topics: Topics, kind: str, *, tenant: str | None, cursor: str | None, limit: int
) -> WaitingPage:
    """The same from the log. Blocks for as long as reading all of it takes."""
    after = "" if cursor is None else _checked(cursor)
    found = [one for one in _open(log, topics.events, kind) if tenant in (None, one.tenant)]
    behind = sorted((one for one in found if one.place > after), key=lambda one: one.place)
    return _page(behind[: limit + 1], limit, len(found))


def row_of(one: Waiting) -> dict[str, Any]:
    """As the API and `--json` show it."""
    row = {
        "trajectory_id": one.trajectory_id,
        "tenant": one.tenant,
        "call_id": one.call_id,
        "tool": one.tool,
        "arguments": one.arguments,
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


def _open(log: Log, topic: str, kind: str) -> Iterable[Waiting]:
    agenda = Agenda()
    for partition in range(log.partition_count(topic)):
        states = dict[bytes, TrajectoryAgenda]()
        bounds = log.bounds(topic, partition)
        for record in read_range(log, topic, partition, bounds.first, bounds.end, bounds=bounds):
            try:
                event = decode_event(record.key, record.value, record.headers)
            except ForeignRecord:
                continue
            key = event.envelope.trajectory_id
            state = states.get(key.encode(), agenda.start(key))
            states[key.encode()] = agenda.apply(state, Seen(event, record))._replace(outbox=Outbox())
        for state in states.values():
            yield from (one for one in state.waiting.values() if one.kind == kind)


def _page(rows: list[Waiting], limit: int, total: int) -> WaitingPage:
    return WaitingPage(rows[:limit], rows[limit - 1].place if len(rows) > limit else None, total)


def _checked(cursor: str) -> str:
    if _PLACE.fullmatch(cursor) is None:
        raise RangeError(f"{cursor!r} is no cursor", hint="use the one that the page before gave")
    return cursor
