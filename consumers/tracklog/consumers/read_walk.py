"""Walking sorted sets over all partitions, from the highest score or from the lowest, a chunk at a time (DESIGN §10).

In each partition the smallest index is walked and the others are asked about what it gives, so a page costs what
is looked at, never a whole intersection. All partitions that need more are asked in one round trip.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tracklog.consumers.read_filter import Cursor, Filter
from tracklog.infra.redis_client import RedisClient
from tracklog.infra.redis_script import ask


class _Lane:
    """One partition: what was found and not given yet, and where its walk stands."""

    def __init__(
        self, partition: int, keys: list[str], reached: Cursor | None, chunk: int, *, lowest_first: bool
    ) -> None:
        self.partition = partition
        self.keys = keys
        self.reached = reached
        self.chunk = chunk
        self.lowest_first = lowest_first
        self.found: deque[Cursor] = deque()
        self.ended = False

    @property
    def hungry(self) -> bool:
        return not self.found and not self.ended

    def take_in(self, answer: Sequence[bytes]) -> list[Cursor]:
        """The entries of a chunk that lie behind the place reached; the rest of a tie is passed again."""
        entries = [Cursor(int(float(score)), name.decode()) for name, score in _pairs(answer)]
        new = [one for one in entries if self.reached is None or self._is_behind(one, self.reached)]
        self.ended = len(entries) < self.chunk
        if new:
            self.reached = new[-1]
        else:
            self.chunk *= 2  # a tie longer than the chunk: only a longer chunk gets past it
        return new

    def _is_behind(self, one: Cursor, reached: Cursor) -> bool:
        return one > reached if self.lowest_first else one < reached


def walked(
    client: RedisClient,
    keys: Mapping[int, list[str]],
    wanted: Filter,
    cursor: Cursor | None,
    chunk: int,
    *,
    lowest_first: bool = False,
) -> Iterator[tuple[int, Cursor]]:
    """(partition, entry) of every member that is in all of its partition's `keys`, from behind the cursor. `wanted`
    bounds the scores."""
    lanes = [
        _Lane(partition, list(names), cursor, chunk, lowest_first=lowest_first) for partition, names in keys.items()
    ]
    _smallest_first(client, lanes)
    while True:
        while hungry := [lane for lane in lanes if lane.hungry]:
            _feed(client, hungry, wanted)
        lanes = [lane for lane in lanes if lane.found]
        if not lanes:
            return
        nearest = (min if lowest_first else max)(lanes, key=lambda lane: lane.found[0])
        yield nearest.partition, nearest.found.popleft()


def _smallest_first(client: RedisClient, lanes: Sequence[_Lane]) -> None:
    sizes = iter(ask(client, [("ZCARD", key) for lane in lanes for key in lane.keys if len(lane.keys) > 1]))
    for lane in lanes:
        if len(lane.keys) > 1:
            sized = {key: next(sizes) for key in lane.keys}
            lane.keys.sort(key=sized.__getitem__)


def _feed(client: RedisClient, lanes: Sequence[_Lane], wanted: Filter) -> None:
    answers = ask(client, [_range(lane, wanted) for lane in lanes])
    news = [lane.take_in(answer) for lane, answer in zip(lanes, answers, strict=True)]
    checks = [
        (lane, ("ZMSCORE", key, *(one.trajectory_id for one in new)))
        for lane, new in zip(lanes, news, strict=True)
        if new
        for key in lane.keys[1:]
    ]
    missing: dict[int, set[int]] = {}
    for (lane, _), scores in zip(checks, ask(client, [command for _, command in checks]), strict=True):
        absent = {place for place, score in enumerate(scores) if score is None}
        missing.setdefault(lane.partition, set()).update(absent)
    for lane, new in zip(lanes, news, strict=True):
        out = missing.get(lane.partition, set())
        lane.found.extend(one for place, one in enumerate(new) if place not in out)


def _range(lane: _Lane, wanted: Filter) -> tuple[Any, ...]:
    low = "-inf" if wanted.since_ms is None else str(wanted.since_ms)
    high = "+inf" if wanted.until_ms is None else str(wanted.until_ms - 1)
    reached = None if lane.reached is None else lane.reached.last_ms
    if lane.lowest_first:
        if reached is not None and (wanted.since_ms is None or reached > wanted.since_ms):
            low = str(reached)
        return ("ZRANGEBYSCORE", lane.keys[0], low, high, "WITHSCORES", "LIMIT", 0, lane.chunk)
    if reached is not None and (wanted.until_ms is None or reached < wanted.until_ms):
        high = str(reached)
    return ("ZREVRANGEBYSCORE", lane.keys[0], high, low, "WITHSCORES", "LIMIT", 0, lane.chunk)


def _pairs(flat: Sequence[bytes]) -> Iterator[tuple[bytes, bytes]]:
    return zip(flat[::2], flat[1::2], strict=True)
