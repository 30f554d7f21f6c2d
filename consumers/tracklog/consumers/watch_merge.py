"""Events of all partitions on their way out of a stream, each trajectory in its order, effects behind their causes.

An event waits for those of other trajectories that it names in its `causes`, and with it what its own trajectory has
behind it: nothing else does. The place in the stream says which offsets still wait, so what went out past them is not
given again.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeVar

from tracklog.infra.clock import Clock
from tracklog.infra.log.port import Record
from tracklog.schemas.codec import Event, decode_event
from tracklog.schemas.errors import ForeignRecord
from tracklog.schemas.head import EMPTY_HEAD, Head, Verdict, advance, judge

__all__ = ["HELD_MAX", "HOLD_S", "Merged", "Merging"]

T = TypeVar("T")

HOLD_S: Final = 1.0
"""How long an event waits for those it follows from."""
HELD_MAX: Final = 100
"""Events that wait, in all partitions: of more, the oldest goes out. They are all named in the place."""
KNOWN_MAX: Final = 20_000
"""Trajectories whose place is kept; one that comes back after so many others is taken on trust again."""


class Merged(NamedTuple):
    """An accepted event on its way out; `positions` and `held` with it out."""

    event: Event
    record: Record
    trusted: bool
    positions: Mapping[int, int]
    held: Mapping[int, Sequence[int]]


class _Place(NamedTuple):
    """How far a trajectory was read. `known`: from its beginning, so that its verdicts are those of every reader."""

    head: Head = EMPTY_HEAD
    known: bool = True


@dataclass(slots=True, eq=False)
class _Queued:
    """An event that was read, and since when it is here; None for a record that goes nowhere."""

    event: Event | None
    record: Record
    read_s: float
    trusted: bool = False
    overdue: bool = False


@dataclass(slots=True)
class _Lane:
    """A partition: the offset behind those that were looked at, which of them wait, and what was not looked at yet.
    `again`: those behind `position` that a stream before this one has not given out."""

    position: int
    again: frozenset[int]
    held: list[_Queued] = field(default_factory=list)
    new: deque[_Queued] = field(default_factory=deque)


class Merging:
    """Of one stream, from `positions` on and what `held` names before them."""

    def __init__(self, positions: Mapping[int, int], held: Mapping[int, Sequence[int]], clock: Clock) -> None:
        self._clock = clock
        self._lanes = {p: _Lane(position, frozenset(held.get(p, ()))) for p, position in positions.items()}
        self._places: OrderedDict[str, _Place] = OrderedDict()
        self._given: OrderedDict[str, int] = OrderedDict()
        self._held = 0
        """Events that wait and may go on waiting."""

    @property
    def starts(self) -> dict[int, int]:
        """Where each partition is read from."""
        return {p: min((*lane.again, lane.position)) for p, lane in self._lanes.items()}

    @property
    def positions(self) -> dict[int, int]:
        return {p: lane.position for p, lane in self._lanes.items()}

    @property
    def held(self) -> dict[int, tuple[int, ...]]:
        """Offsets before the positions that have not gone out, where there are any."""
        return {
            p: tuple(sorted({*lane.again, *(one.record.offset for one in lane.held)}))
            for p, lane in self._lanes.items()
            if lane.held or lane.again
        }

    def wait_s(self, longest_s: float) -> float:
        """How long the next poll may take: not beyond the time of what is held."""
        oldest = min((lane.held[0].read_s for lane in self._lanes.values() if lane.held), default=None)
        return longest_s if oldest is None else min(longest_s, max(0.0, oldest + HOLD_S - self._clock.monotonic_s()))

    def add(self, records: Sequence[Record]) -> None:
        now_s = self._clock.monotonic_s()
        for record in records:
            queued = _Queued(None, record, now_s)
            try:
                event = decode_event(record.key, record.value, record.headers)
            except ForeignRecord:
                event = None
            if event is not None:
                queued.event, queued.trusted = self._judged(event)
            self._lanes[record.partition].new.append(queued)

    def ready(self, wanted: Callable[[Event], bool]) -> Iterator[Merged]:
        """Those wanted whose time has come. One that goes out may be what others wait for, so all are asked again."""
        moved = True
        while moved:
            moved = False
            for lane in self._lanes.values():
                for queued in self._out_of(lane):
                    moved = True
                    assert queued.event is not None
                    envelope = queued.event.envelope
                    _remember(self._given, envelope.trajectory_id, envelope.seq)
                    if wanted(queued.event):
                        held = self.held if self._waiting else {}
                        yield Merged(queued.event, queued.record, queued.trusted, self.positions, held)

    def _out_of(self, lane: _Lane) -> Iterator[_Queued]:
        blocked = set[bytes | None]()
        for queued in list(lane.held):
            if queued.record.key in blocked or self._waits(queued):
                blocked.add(queued.record.key)
            else:
                lane.held.remove(queued)
                self._held -= not queued.overdue
                yield queued
        while lane.new:
            queued = lane.new.popleft()
            before, lane.position = lane.position, max(lane.position, queued.record.offset + 1)
            was_out = queued.record.offset < before and queued.record.offset not in lane.again
            if lane.again:  # what is not there any more does not come again
                lane.again = frozenset(one for one in lane.again if one > queued.record.offset)
            if queued.event is None or was_out:
                continue
            if queued.record.key in blocked or self._waits(queued):
                blocked.add(queued.record.key)
                self._hold(lane, queued)
            else:
                yield queued

    def _hold(self, lane: _Lane, queued: _Queued) -> None:
        lane.held.append(queued)
        self._held += 1
        if self._held > HELD_MAX:
            patient = (one for each in self._lanes.values() for one in each.held if not one.overdue)
            min(patient, key=lambda one: one.read_s).overdue = True
            self._held -= 1

    @property
    def _waiting(self) -> bool:
        return any(lane.held or lane.again for lane in self._lanes.values())

    def _judged(self, event: Event) -> tuple[Event | None, bool]:
        """The event where it is accepted, and whether on trust."""
        envelope = event.envelope
        place = self._places.get(envelope.trajectory_id)
        if place is None:
            place = _Place() if envelope.seq == 0 else _Place(known=False)
        judgement = judge(place.head, event)
        trusted = False
        if judgement.verdict is Verdict.GAP and not place.known:
            place = _Place(Head(envelope.epoch, envelope.seq - 1, envelope.prev_hash), known=False)
            judgement, trusted = judge(place.head, event), True
        _remember(self._places, envelope.trajectory_id, _Place(advance(place.head, event, judgement), place.known))
        return (event if judgement.verdict is Verdict.ACCEPTED else None), trusted

    def _waits(self, queued: _Queued) -> bool:
        if queued.event is None or queued.overdue:
            return False
        envelope = queued.event.envelope
        others = [ref for ref in envelope.causes if ref.trajectory_id != envelope.trajectory_id]
        if not others or self._clock.monotonic_s() - queued.read_s >= HOLD_S:
            return False
        return any(not self._is_given(ref.trajectory_id, ref.seq) for ref in others)

    def _is_given(self, trajectory_id: str, seq: int) -> bool:
        """Whether it went out, or cannot come any more because later ones of its trajectory did."""
        return self._given.get(trajectory_id, -1) >= seq


def _remember(held: OrderedDict[str, T], name: str, value: T) -> None:
    held[name] = value
    held.move_to_end(name)
    if len(held) > KNOWN_MAX:
        held.popitem(last=False)
