"""The stream of what happens in all trajectories, to follow while agents run.

    async for watched in watch(log, topic, start="end", wanted=Wanted(types={"ToolResult"})):
        ...
        watched.token            # go on behind this one: watch(..., start=Token.of(text))

Accepted events of all partitions as they come, each trajectory in its order. An event that names events of other
trajectories in its `causes` comes after them, where they are on their way too: it waits for them, never longer than
`watch_merge.HOLD_S`, and holds up nothing but its own trajectory.

A stream that does not start at the beginning knows nothing of what was accepted before. The first event of a trajectory
that it meets is taken on trust (`trusted`), the others must follow on it.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Self

import orjson

from tracklog.consumers.event_json import event_map
from tracklog.consumers.read import Reader as ReadClient
from tracklog.consumers.read_events import Standing
from tracklog.consumers.read_live import seen_of
from tracklog.consumers.watch_merge import HELD_MAX, Merged, Merging
from tracklog.infra.clock import Clock, SystemClock
from tracklog.infra.log.port import Log, Reader, Record
from tracklog.infra.log.ranges import resolve_range
from tracklog.infra.log.trimmed import pass_trimmed
from tracklog.schemas.codec import Event
from tracklog.schemas.errors import InputError, OffsetTrimmed, RangeError
from tracklog.schemas.events import EVENT_TYPES

__all__ = [
    "Standings",
    "Start",
    "Token",
    "Wanted",
    "Watch",
    "Watched",
    "standings_of",
    "start_of",
    "types_of",
    "watch",
    "watched_map",
]

POLL_S: Final = 0.25
POLL_RECORDS_MAX: Final = 500
STANDING_S_MAX: Final = 5.0
"""How long events wait until they are folded, where agents or statuses are asked for."""
_POSITIONS: Final = re.compile(r"[0-9]+:[0-9]+(, ?[0-9]+:[0-9]+)*")


class Token(NamedTuple):
    """A place in the stream: the next offset of each partition, and the offsets before it that have not come yet."""

    positions: Mapping[int, int]
    held: Mapping[int, Sequence[int]] = {}

    def __str__(self) -> str:
        at = [self.positions[partition] for partition in sorted(self.positions)]
        said: Any = [at, sorted((p, *offsets) for p, offsets in self.held.items())] if self.held else at
        return base64.urlsafe_b64encode(orjson.dumps(said)).decode().rstrip("=")

    @classmethod
    def of(cls, text: str) -> Token:
        """The inverse of `str`. Raises RangeError for what is none."""
        try:
            said = orjson.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
            at, held = said if isinstance(said, list) and said and isinstance(said[0], list) else (said, [])
            found = cls(dict(enumerate(at)), {p: tuple(offsets) for p, *offsets in held})
        except (ValueError, TypeError, binascii.Error) as error:
            raise _no_token(text) from error
        offsets = [*found.positions.values(), *found.held, *(one for own in found.held.values() for one in own)]
        beyond = any(
            p not in found.positions or one >= found.positions[p] for p, own in found.held.items() for one in own
        )
        if not found.positions or beyond or not all(type(one) is int and one >= 0 for one in offsets):
            raise _no_token(text)
        if sum(map(len, found.held.values())) > HELD_MAX + 1:
            raise _no_token(text)
        return found


def _no_token(text: str) -> RangeError:
    return RangeError(f"{text[:100]!r} is no token of a stream", hint="use one that the stream gave")


Start = Token | Mapping[int, int] | str
"""Where a stream begins: a token; the offset of the partitions named, the others from now on; or for every partition
`end` (what comes from now on), `beginning`, an ISO 8601 time."""


def start_of(text: str) -> Start:
    """As people write it: PARTITION:OFFSET[,...], `end`, `beginning`, or a time, which is looked at when it is used."""
    return seen_of(text) if _POSITIONS.fullmatch(text) else text


def types_of(names: Iterable[str]) -> frozenset[str]:
    """Raises InputError for what is no event type."""
    for name in names:
        if name not in EVENT_TYPES:
            raise InputError(f"{name[:100]!r} is no event type", hint=f"one of {', '.join(sorted(EVENT_TYPES))}")
    return frozenset(names)


class Watched(NamedTuple):
    """An accepted event and the record that holds it. `trusted`: the first of its trajectory here, and not its first
    of all. `token`: where to go on behind it."""

    event: Event
    record: Record
    trusted: bool
    token: Token


def watched_map(one: Watched) -> dict[str, Any]:
    """As JSON shows it: the event, whether it is taken on trust, and where to go on."""
    return {**event_map(one.event, one.record), "trusted": one.trusted, "token": str(one.token)}


Standings = Callable[[Sequence[Watched]], Awaitable[Mapping[str, Standing]]]
"""How the trajectories of events stand after them, by id."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is given out; empty: all. `agents` and `statuses` are of the trajectory, as it is folded with the event or
    a later one."""

    types: frozenset[str] = frozenset()
    tenants: frozenset[str] = frozenset()
    trajectories: frozenset[str] = frozenset()
    agents: frozenset[str] = frozenset()
    statuses: frozenset[str] = frozenset()

    @property
    def asks_standing(self) -> bool:
        return bool(self.agents or self.statuses)

    def matches(self, event: Event) -> bool:
        envelope = event.envelope
        return (
            (not self.types or event.name in self.types)
            and (not self.tenants or envelope.tenant in self.tenants)
            and (not self.trajectories or envelope.trajectory_id in self.trajectories)
        )

    def stands(self, standing: Standing | None) -> bool:
        if standing is None:
            return False
        return (not self.agents or standing.agent in self.agents) and (
            not self.statuses or standing.status in self.statuses
        )


def standings_of(reader: ReadClient) -> Standings:
    """From what is folded, which is waited for: raises ReadBehind when that takes too long, StoreError."""

    async def standings(events: Sequence[Watched]) -> Mapping[str, Standing]:
        last: dict[int, int] = {}
        for one in events:
            last[one.record.partition] = max(one.record.offset, last.get(one.record.partition, 0))
        ids = dict.fromkeys(one.event.envelope.trajectory_id for one in events)
        return (await reader.seeing(last, wait_s=STANDING_S_MAX).standings(ids)).value

    return standings


class Watch:
    """A stream, a batch at a time; `watch` gives it event by event. Of one event loop.

    Holds at most POLL_RECORDS_MAX events in memory and HELD_MAX that wait, and reads no further while nobody asks for
    the next batch.
    """

    def __init__(
        self,
        log: Log,
        topic: str,
        *,
        start: Start = "end",
        wanted: Wanted | None = None,
        standings: Standings | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Raises InputError for a filter by agent or status without `standings`."""
        self._log = log
        self._topic = topic
        self._start = start
        self._wanted = wanted if wanted is not None else Wanted()
        self._standings = standings
        self._clock = clock if clock is not None else SystemClock()
        self._thread = ThreadPoolExecutor(1, "tracklog-watch")  # a reader belongs to one thread
        self._reader: Reader | None = None
        self._merging: Merging
        if self._wanted.asks_standing and standings is None:
            raise InputError("agents and statuses are what is folded of trajectories", hint="give `standings`")

    @property
    def token(self) -> Token:
        """Behind all that was given out, also when that was nothing."""
        return Token(self._merging.positions, self._merging.held)

    async def __aenter__(self) -> Self:
        """Raises RangeError, TopicMissing, LogUnavailable; for a filter by agent or status NotFolded, which names the
        projection that nobody folds."""
        try:
            if self._wanted.asks_standing and self._standings is not None:
                await self._standings(())
            await self._run(self._open)
        except BaseException:
            self._thread.shutdown(wait=False)
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Waits for nothing: a poll that is under way ends first."""
        if self._reader is not None:
            self._thread.submit(self._reader.close)
            self._reader = None
        self._thread.shutdown(wait=False)

    async def batch(self) -> list[Watched]:
        """The next events, [] when none came within POLL_S.

        Raises LogUnavailable, and what `standings` raises: then the events are lost to this stream, and one that begins
        at the token of the last event given out has them.
        """
        await self._run(self._poll)
        found = [_watched(one) for one in self._merging.ready(self._wanted.matches)]
        if not found or not self._wanted.asks_standing or self._standings is None:
            return found
        standing = await self._standings(found)
        return [one for one in found if self._wanted.stands(standing.get(one.event.envelope.trajectory_id))]

    def _open(self) -> None:
        token = _token_of(self._log, self._topic, self._start)
        self._merging = Merging(token.positions, token.held, self._clock)
        firsts = {p: self._log.bounds(self._topic, p).first for p in token.positions}
        starts = {p: max(start, firsts[p]) for p, start in self._merging.starts.items()}
        self._reader = self._log.reader(self._topic, starts, follows=True)

    def _poll(self) -> None:
        reader = self._reader
        assert reader is not None, "it is closed"
        try:
            self._merging.add(reader.poll(POLL_RECORDS_MAX, self._merging.wait_s(POLL_S)))
        except OffsetTrimmed:
            if not pass_trimmed(self._log, self._topic, reader, self._merging.positions):
                raise

    async def _run(self, call: Callable[[], None]) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, call)


async def watch(
    log: Log,
    topic: str,
    *,
    start: Start = "end",
    wanted: Wanted | None = None,
    standings: Standings | None = None,
    clock: Clock | None = None,
    stopping: Callable[[], bool] = lambda: False,
) -> AsyncIterator[Watched]:
    """Follows the log until `stopping` says so or the iterator is closed; see the module, and `Watch`.

    Where the log no longer has what a place names, it goes on at what there is. Raises RangeError, TopicMissing,
    LogUnavailable, and what `standings` raises.
    """
    stream = Watch(log, topic, start=start, wanted=wanted, standings=standings, clock=clock)
    async with stream:
        while not stopping():
            for watched in await stream.batch():
                yield watched


def _watched(one: Merged) -> Watched:
    return Watched(one.event, one.record, one.trusted, Token(one.positions, one.held))


def _token_of(log: Log, topic: str, start: Start) -> Token:
    partitions = range(log.partition_count(topic))
    if isinstance(start, str):
        return Token({p: resolve_range(log, topic, p, start, "end").start for p in partitions})
    if isinstance(start, Token):
        if set(start.positions) != set(partitions):
            raise RangeError(
                f"the token is of a log with {len(start.positions)} partitions; {topic} has {len(partitions)}",
                hint="it is of another installation",
            )
        return start
    return _named(log, topic, partitions, start)


def _named(log: Log, topic: str, partitions: Iterable[int], start: Mapping[int, int]) -> Token:
    bounds = {p: log.bounds(topic, p) for p in partitions}
    for partition, offset in start.items():
        if partition not in bounds:
            raise RangeError(f"{topic} has no partition {partition}, but 0 to {max(bounds)}")
        if not 0 <= offset <= bounds[partition].end:
            raise RangeError(
                f"partition {partition} of {topic} ends at offset {bounds[partition].end}, before {offset}"
            )
    return Token({p: start.get(p, one.end) for p, one in bounds.items()})
