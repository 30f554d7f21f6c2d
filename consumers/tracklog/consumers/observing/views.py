"""What projections keep in Redis of the partitions that a process owns, as gauges."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from tracklog.infra.metrics import Sample
from tracklog.infra.redis_client import RedisClient
from tracklog.infra.redis_script import ask
from tracklog.processors.builtin.doubts import Doubts
from tracklog.processors.builtin.pace import Paces
from tracklog.processors.indexes import by_status
from tracklog.processors.parked import PARKED
from tracklog.processors.redis_store import live_keys
from tracklog.processors.trajectories import NAME
from tracklog.processors.trajectory import STATUSES

__all__ = ["ViewSamples"]

_MS: Final = 1000


class ViewSamples:
    """Of one installation. Its methods raise StoreUnavailable; what is not folded is not shown."""

    def __init__(self, client: RedisClient, prefix: str) -> None:
        self._client = client
        self._prefix = prefix

    def all(self, names: Sequence[str], partitions: Sequence[int], now_ms: int, stuck_s: float) -> Iterator[Sample]:
        """Of these projections, which the process folds."""
        if not partitions:
            return
        if NAME in names:
            yield from self._statuses(partitions)
        if Doubts.name in names:
            yield from self._doubts(partitions, now_ms)
        if Paces.name in names:
            yield from self._paces(partitions, now_ms - round(stuck_s * _MS))
        for name in names:
            if name != NAME:
                parked = self._asked(name, partitions, PARKED, "HLEN")
                yield from (Sample("tracklog_parked_trajectories", sum(found), {"processor": name}) for found in parked)

    def _statuses(self, partitions: Sequence[int]) -> Iterator[Sample]:
        for status in STATUSES:
            for found in self._asked(NAME, partitions, by_status(status), "ZCARD"):
                yield Sample("tracklog_trajectories", sum(found), {"status": status})

    def _doubts(self, partitions: Sequence[int], now_ms: int) -> Iterator[Sample]:
        for found in self._asked(Doubts.name, partitions, "open", "ZCARD"):
            yield Sample("tracklog_calls_in_doubt", sum(found))
        for found in self._asked(Doubts.name, partitions, "open", "ZRANGE", 0, 0, "WITHSCORES"):
            oldest_ms = min((float(one[1]) for one in found if one), default=float(now_ms))
            yield Sample("tracklog_calls_in_doubt_oldest_seconds", max(0.0, (now_ms - oldest_ms) / _MS))

    def _paces(self, partitions: Sequence[int], before_ms: int) -> Iterator[Sample]:
        for found in self._asked(Paces.name, partitions, "moving", "ZCOUNT", "-inf", before_ms):
            yield Sample("tracklog_runs_stuck", sum(found))
        for found in self._asked(Paces.name, partitions, "looping", "ZCARD"):
            yield Sample("tracklog_runs_looping", sum(found))

    def _asked(
        self, name: str, partitions: Sequence[int], key: str, command: str, *rest: str | int
    ) -> Iterator[list[Any]]:
        """The answers of all partitions, once; nothing where the projection was never folded."""
        live = live_keys(self._client, self._prefix, name)
        if live is not None:
            yield ask(self._client, [(command, live.keys.key(one, key), *rest) for one in partitions])
