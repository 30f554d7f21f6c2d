"""The stream of what happens in all trajectories, to follow while agents run.

    async for watched in watch(log, topic, start="end", wanted=Wanted(types={"ToolResult"})):
        ...
        watched.token            # go on behind this one: watch(..., start=Token.of(text))

Accepted events of all partitions as they come, each trajectory in its order. An event that names others in its `causes`
comes after them, where they are on their way too: it waits for them, never longer than HOLD_S.

A stream that does not start at the beginning knows nothing of what was accepted before. The first event of a trajectory
that it meets is taken on trust (`trusted`), the others must follow on it.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeVar

import orjson

from tracklog.infra.clock import Clock, SystemClock
from tracklog.infra.log.port import Log, Reader, Record
from tracklog.infra.log.ranges import resolve_range
from tracklog.infra.log.trimmed import pass_trimmed
from tracklog.schemas.codec import Event, decode_event
from tracklog.schemas.errors import ForeignRecord, OffsetTrimmed, RangeError
from tracklog.schemas.head import EMPTY_HEAD, Head, Verdict, advance, judge

__all__ = ["Token", "Wanted", "Watched", "watch"]

T = TypeVar("T")

HOLD_S: Final = 1.0
"""How long an event waits for those it follows from."""
POLL_S: Final = 0.25
POLL_RECORDS_MAX: Final = 500
KNOWN_MAX: Final = 20_000
"""Trajectories whose place is kept; one that comes back after so many others is taken on trust again."""


class Token(NamedTuple):
    """A place in the stream: the next offset of each partition, by partition."""

    positions: Mapping[int, int]

    def __str__(self) -> str:
        pairs = [self.positions[partition] for partition in sorted(self.positions)]
        return base64.urlsafe_b64encode(orjson.dumps(pairs)).decode().rstrip("=")

    @classmethod
    def of(cls, text: str) -> Token:
        """The inverse of `str`. Raises RangeError for what is none."""
        wrong = RangeError(f"{text!r} is no token of a stream", hint="use one that the stream gave")
        try:
            pairs = orjson.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        except (ValueError, binascii.Error) as error:
            raise wrong from error
        if not isinstance(pairs, list) or not pairs or not all(type(one) is int and one >= 0 for one in pairs):
            raise wrong
        return cls(dict(enumerate(pairs)))


class Watched(NamedTuple):
    """An accepted event and the record that holds it. `trusted`: the first of its trajectory here, and not its first
    of all. `token`: where to go on behind it."""

    event: Event
    record: Record
    trusted: bool
    token: Token


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is given out; empty: all."""

    types: frozenset[str] = frozenset()
    tenants: frozenset[str] = frozenset()
    trajectories: frozenset[str] = frozenset()

    def matches(self, event: Event) -> bool:
        envelope = event.envelope
        return (
            (not self.types or event.name in self.types)
            and (not self.tenants or envelope.tenant in self.tenants)
            and (not self.trajectories or envelope.trajectory_id in self.trajectories)
        )


async def watch(
    log: Log,
    topic: str,
    *,
    start: Token | str = "end",
    wanted: Wanted | None = None,
    clock: Clock | None = None,
    stopping: Callable[[], bool] = lambda: False,
) -> AsyncIterator[Watched]:
    """Follows the log until `stopping` says so or the iterator is closed; see the module.

    `start` is a token, or for every partition `end` (what comes from now on), `beginning`, or an ISO 8601 time. Where
    the log no longer has what a token names, it goes on at what there is. Holds at most POLL_RECORDS_MAX events in
    memory, and reads no further while nobody takes them. Raises RangeError, TopicMissing, LogUnavailable.
    """
    wanted = wanted if wanted is not None else Wanted()
    positions = await asyncio.to_thread(_positions, log, topic, start)
    reader = await asyncio.to_thread(log.reader, topic, positions)
    merging = _Merging(positions, clock if clock is not None else SystemClock())
    with closing(reader):
        while not stopping():
            wait_s = merging.wait_s()
            records = await asyncio.to_thread(_poll, log, topic, reader, positions, wait_s)
            merging.add(records)
            for watched in merging.ready():
                if wanted.matches(watched.event):
                    yield watched


def _positions(log: Log, topic: str, start: Token | str) -> dict[int, int]:
    partitions = range(log.partition_count(topic))
    if isinstance(start, str):
        return {p: resolve_range(log, topic, p, start, "end").start for p in partitions}
    if set(start.positions) != set(partitions):
        raise RangeError(
            f"the token is of a log with {len(start.positions)} partitions; {topic} has {len(partitions)}",
            hint="it is of another installation",
        )
    return {p: max(start.positions[p], log.bounds(topic, p).first) for p in partitions}


def _poll(log: Log, topic: str, reader: Reader, partitions: Mapping[int, int], wait_s: float) -> list[Record]:
    try:
        return reader.poll(POLL_RECORDS_MAX, wait_s)
    except OffsetTrimmed:
        if not pass_trimmed(log, topic, reader, partitions):
            raise
        return []


class _Place(NamedTuple):
    """How far a trajectory was read. `known`: from its beginning, so that its verdicts are those of every reader."""

    head: Head = EMPTY_HEAD
    known: bool = True


@dataclass(slots=True)
class _Queued:
    """An event that was read, and since when it is here."""

    event: Event | None
    record: Record
    read_s: float
    trusted: bool = False


@dataclass(slots=True)
class _Merging:
    """Events of all partitions on their way out."""

    positions: dict[int, int]
    clock: Clock
    queues: dict[int, deque[_Queued]] = field(default_factory=dict)
    places: OrderedDict[str, _Place] = field(default_factory=OrderedDict)
    given: OrderedDict[str, int] = field(default_factory=OrderedDict)

    def wait_s(self) -> float:
        """How long the next poll may take: not beyond the time of what is held."""
        oldest = min((queue[0].read_s for queue in self.queues.values() if queue), default=None)
        if oldest is None:
            return POLL_S
        return min(POLL_S, max(0.0, oldest + HOLD_S - self.clock.monotonic_s()))

    def add(self, records: list[Record]) -> None:
        now_s = self.clock.monotonic_s()
        for record in records:
            queued = _Queued(None, record, now_s)
            try:
                event = decode_event(record.key, record.value, record.headers)
            except ForeignRecord:
                event = None
            if event is not None:
                queued.event, queued.trusted = self._judged(event)
            self.queues.setdefault(record.partition, deque()).append(queued)

    def ready(self) -> Iterator[Watched]:
        """Those whose time has come, and the tokens that go on behind them."""
        moved = True
        while moved:
            moved = False
            for partition in sorted(self.queues):
                queue = self.queues[partition]
                while queue and not self._waits(queue[0]):
                    queued = queue.popleft()
                    moved = True
                    self.positions[partition] = queued.record.offset + 1
                    if queued.event is not None:
                        envelope = queued.event.envelope
                        _remember(self.given, envelope.trajectory_id, envelope.seq)
                        yield Watched(queued.event, queued.record, queued.trusted, Token(dict(self.positions)))

    def _judged(self, event: Event) -> tuple[Event | None, bool]:
        """The event where it is accepted, and whether on trust."""
        envelope = event.envelope
        place = self.places.get(envelope.trajectory_id)
        if place is None:
            place = _Place() if envelope.seq == 0 else _Place(known=False)
        judgement = judge(place.head, event)
        trusted = False
        if judgement.verdict is Verdict.GAP and not place.known:
            place = _Place(Head(envelope.epoch, envelope.seq - 1, envelope.prev_hash), known=False)
            judgement, trusted = judge(place.head, event), True
        _remember(self.places, envelope.trajectory_id, _Place(advance(place.head, event, judgement), place.known))
        return (event if judgement.verdict is Verdict.ACCEPTED else None), trusted

    def _waits(self, queued: _Queued) -> bool:
        if queued.event is None or not queued.event.envelope.causes:
            return False
        if self.clock.monotonic_s() - queued.read_s >= HOLD_S:
            return False
        return any(not self._given(ref.trajectory_id, ref.seq) for ref in queued.event.envelope.causes)

    def _given(self, trajectory_id: str, seq: int) -> bool:
        """Whether it went out, or cannot come any more because later ones of its trajectory did."""
        return self.given.get(trajectory_id, -1) >= seq


def _remember(held: OrderedDict[str, T], name: str, value: T) -> None:
    held[name] = value
    held.move_to_end(name)
    if len(held) > KNOWN_MAX:
        held.popitem(last=False)
