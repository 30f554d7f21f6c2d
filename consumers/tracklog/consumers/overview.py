"""What goes on right now, in one look, from what processors keep in Redis. What is not folded is None, never 0."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import orjson

from tracklog.consumers.listing import row_of
from tracklog.consumers.read import Reader
from tracklog.consumers.read_filter import Filter
from tracklog.infra.redis_client import RedisClient
from tracklog.infra.redis_script import ask
from tracklog.processors import agenda
from tracklog.processors.builtin.activity import MINUTE_MS, Activity
from tracklog.processors.builtin.doubts import Doubts
from tracklog.processors.builtin.pace import Paces
from tracklog.processors.builtin.spend import Meter, Spend
from tracklog.processors.redis_store import LiveKeys, live_keys

__all__ = ["Doubted", "Overview", "Still", "overview"]

RUNNING_MAX: Final = 20
"""Trajectories in the table: those that moved last."""
LISTED_MAX: Final = 10


class Doubted(NamedTuple):
    """`asked`: the person it was escalated to; empty while it is only in doubt."""

    trajectory_id: str
    call_id: str
    tool: str
    asked: str
    since_ms: int


class Still(NamedTuple):
    """A trajectory that somebody owns, and its last event."""

    trajectory_id: str
    last_ms: int


class Overview(NamedTuple):
    """`counts` by status, and `all`; `running` as `tracklog list` gives rows; `still` those that moved longest ago;
    `last_minute` events by type of the last whole minute; `today` by tenant and model."""

    as_of: Mapping[int, int]
    counts: Mapping[str, int]
    running: list[dict[str, Any]]
    doubted: list[Doubted] | None
    approvals: int | None
    still: list[Still] | None
    looping: Mapping[str, int] | None
    last_minute: Mapping[str, int] | None
    today: Mapping[str, Meter] | None

    def as_map(self) -> dict[str, Any]:
        """As `--json` shows it."""
        found = self._asdict()
        found["as_of"] = {str(partition): offset for partition, offset in self.as_of.items()}
        found["doubted"] = None if self.doubted is None else [one._asdict() for one in self.doubted]
        found["still"] = None if self.still is None else [one._asdict() for one in self.still]
        found["today"] = None if self.today is None else {name: one._asdict() for name, one in self.today.items()}
        return found


def overview(client: RedisClient, prefix: str, now_ms: int) -> Overview:
    """Raises StoreError when nothing is folded yet, StoreUnavailable."""
    reader = Reader(client, prefix=prefix)
    views = _Views(client, prefix)
    page = reader.states(Filter(status="running"), None, RUNNING_MAX)
    return Overview(
        reader.as_of(),
        reader.counts(),
        [row_of(one) for one in page.trajectories],
        views.doubted(),
        views.count(agenda.NAME, agenda.ASKED),
        views.still(),
        views.ranked(Paces.name, "looping"),
        views.minute(now_ms // MINUTE_MS * MINUTE_MS - MINUTE_MS),
        views.spent(str(datetime.fromtimestamp(now_ms / 1000, UTC).date())),
    )


class _Views:
    """What views keep, added up over partitions."""

    def __init__(self, client: RedisClient, prefix: str) -> None:
        self._client = client
        self._prefix = prefix

    def doubted(self) -> list[Doubted] | None:
        found = self._first(Doubts.name, "open")
        if found is None:
            return None
        return [_doubted(member, since_ms) for since_ms, member in found[:LISTED_MAX]]

    def still(self) -> list[Still] | None:
        found = self._first(Paces.name, "moving")
        return None if found is None else [Still(member.decode(), last_ms) for last_ms, member in found[:LISTED_MAX]]

    def ranked(self, name: str, key: str) -> dict[str, int] | None:
        """The highest scores first."""
        live = self._live(name)
        if live is None:
            return None
        commands = [("ZREVRANGE", one, 0, LISTED_MAX - 1, "WITHSCORES") for one in _keys(live, key)]
        pairs = [pair for answer in ask(self._client, commands) for pair in _pairs(answer)]
        return {member.decode(): score for score, member in sorted(pairs, reverse=True)[:LISTED_MAX]}

    def count(self, name: str, key: str) -> int | None:
        live = self._live(name)
        return None if live is None else sum(ask(self._client, [("ZCARD", one) for one in _keys(live, key)]))

    def minute(self, start_ms: int) -> dict[str, int] | None:
        live = self._live(Activity.name)
        if live is None:
            return None
        total: dict[str, int] = {}
        for fields in ask(self._client, [("HGETALL", one) for one in _keys(live, f"minute:{start_ms}")]):
            for name, number in fields.items():
                total[name.decode()] = total.get(name.decode(), 0) + int(number)
        return total

    def spent(self, day: str) -> dict[str, Meter] | None:
        """By `TENANT|MODEL`."""
        live = self._live(Spend.name)
        if live is None:
            return None
        total: dict[str, dict[str, int]] = {}
        for fields in ask(self._client, [("HGETALL", one) for one in _keys(live, f"meter:{day}")]):
            for name, number in fields.items():
                whose, _, what = name.decode().rpartition("|")
                meter = total.setdefault(whose, dict.fromkeys(Meter._fields, 0))
                meter[what] += int(number)
        return {whose: Meter(**meter) for whose, meter in total.items()}

    def _first(self, name: str, key: str) -> list[tuple[int, bytes]] | None:
        """Scores and members, the lowest first."""
        live = self._live(name)
        if live is None:
            return None
        commands = [("ZRANGE", one, 0, LISTED_MAX - 1, "WITHSCORES") for one in _keys(live, key)]
        return sorted(pair for answer in ask(self._client, commands) for pair in _pairs(answer))

    def _live(self, name: str) -> LiveKeys | None:
        return live_keys(self._client, self._prefix, name)


def _keys(live: LiveKeys, key: str) -> list[str]:
    return [live.keys.key(partition, key) for partition in range(live.partitions)]


def _pairs(answer: list[bytes]) -> Iterable[tuple[int, bytes]]:
    return ((round(float(score)), member) for member, score in zip(answer[::2], answer[1::2], strict=True))


def _doubted(member: bytes, since_ms: int) -> Doubted:
    trajectory_id, call_id, tool, asked = orjson.loads(member)
    return Doubted(trajectory_id, call_id, tool, asked, since_ms)
