"""The record of one trajectory by turns: what it inherits and then its own events, with the contexts in it rebuilt."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import orjson

from tracklog.infra.blobs import BlobStore
from tracklog.infra.log.port import Log
from tracklog.producers.asked import asked_tools
from tracklog.producers.history import read_history
from tracklog.producers.importers.transcript import seen_hash
from tracklog.producers.lineage import read_inherited
from tracklog.producers.messages import Messages
from tracklog.producers.versions import Versions
from tracklog.schemas.codec import Event
from tracklog.schemas.context import context_hash
from tracklog.schemas.errors import BlobAltered, BlobMissing, InputError, InvalidEvent
from tracklog.schemas.events import ContextBuilt, DriftCrossed, TaskStarted
from tracklog.schemas.fold import apply_edits
from tracklog.schemas.state import MessageRef

__all__ = ["Context", "SeenMessage", "Turns", "read_turns"]


Place = tuple[str, int]
"""Trajectory and seq."""


class Context(NamedTuple):
    """A context as recorded. `place` is its index in the record, `tools` the hash of those that were offered."""

    turn: int
    place: int
    event: Event
    body: ContextBuilt
    tools: bytes | None


class SeenMessage(NamedTuple):
    """One message of a context. `message` is None when it cannot be had, `problem` says why."""

    trajectory_id: str
    seq: int
    message: dict[str, Any] | None
    problem: str = ""


class Turns:
    """`events` are the accepted ones, what is inherited first; `inherited` says how many."""

    def __init__(self, trajectory_id: str, inherited: Sequence[Event], own: Sequence[Event], blobs: BlobStore) -> None:
        self.trajectory_id = trajectory_id
        self.events = (*inherited, *own)
        self.inherited = len(inherited)
        self.blobs = blobs
        self.contexts: dict[int, Context] = {}
        """By turn."""
        self._messages = Messages(blobs)
        self._seen: dict[Place, bytes] = {}
        self._walked = -1, dict[str, tuple[MessageRef, ...]]()
        self._walk()

    @property
    def last(self) -> int:
        """The number of the last turn, 0 when there is none."""
        return max(self.contexts, default=0)

    def end(self, turn: int) -> int:
        """How many events there were when the turn was over: an inherited one is over before any of its own.

        Raises InputError for a turn that is not there.
        """
        start = 0 if turn == 0 else self.context(turn).place
        stop = self.inherited if start < self.inherited else len(self.events)
        return next((n for n in range(start, stop) if self.events[n].envelope.turn > turn), stop)

    def context(self, turn: int) -> Context:
        """Raises InputError for a turn that is not there."""
        if turn not in self.contexts:
            there = f"turns 1 to {self.last}" if self.contexts else "no turn"
            raise InputError(f"trajectory {self.trajectory_id!r} has no turn {turn}", hint=f"it has {there}")
        return self.contexts[turn]

    def of_turn(self, turn: int) -> Iterator[Event]:
        """Its events, from its context on; of turn 0, what comes before the first."""
        start = 0 if turn == 0 else self.context(turn).place
        return (event for event in self.events[start : self.end(turn)] if event.envelope.turn == turn)

    def versions(self, place: int) -> Versions | None:
        """Those that hold before the event at this place, None before a start."""
        return next((held for at, held in reversed(self._versions) if at < place), None)

    def messages(self, context: Context) -> list[SeenMessage]:
        """The messages of a context as the model saw them. Raises BlobError when the store cannot be used."""
        return [self._message(*one) for one in self.refs(context)]

    def message(self, trajectory_id: str, seq: int) -> dict[str, Any]:
        """The message that an event holds. Raises BlobMissing, BlobAltered, and InvalidEvent where there is none."""
        return self._messages.at(trajectory_id, seq)

    def event(self, trajectory_id: str, seq: int) -> Event | None:
        """An event of the record, None for one that is not in it."""
        return self._messages.event(trajectory_id, seq)

    def tools(self, context: Context) -> Any:
        """The tools that were offered, None for none. Raises BlobMissing, BlobAltered, InvalidEvent."""
        if context.tools is None:
            return None
        try:
            return orjson.loads(self.blobs.get(context.tools.hex()))
        except orjson.JSONDecodeError as error:
            raise InvalidEvent(f"the tools in blob {context.tools.hex()} are no JSON") from error

    def hashes(self, context: Context) -> list[bytes]:
        """Of its messages. Raises what reading their blobs raises, and InvalidEvent."""
        return [self._hash(one) for one in self.refs(context)]

    def recomputed(self, context: Context) -> bytes:
        """What `context_hash` must be. Raises as `hashes` does."""
        return context_hash(self.hashes(context), context.body.rule_version, context.tools)

    def refs(self, context: Context) -> list[Place]:
        """The events that hold its messages. Cheap when asked for one context after the other."""
        at, before = self._walked
        if at > context.place:
            at, before = -1, {}
        for place in range(at + 1, context.place + 1):
            event = self.events[place]
            if isinstance(event.body, ContextBuilt):
                own = event.envelope.trajectory_id
                before[own] = apply_edits(before.get(own, ()), event.body)
        self._walked = context.place, before
        own = context.event.envelope.trajectory_id
        return [(one.trajectory_id or own, one.seq) for one in before[own]]

    def _message(self, trajectory_id: str, seq: int) -> SeenMessage:
        try:
            return SeenMessage(trajectory_id, seq, self.message(trajectory_id, seq))
        except (BlobMissing, BlobAltered, InvalidEvent) as error:
            return SeenMessage(trajectory_id, seq, None, error.message)

    def _hash(self, place: Place) -> bytes:
        if place not in self._seen:
            self._seen[place] = seen_hash(self.message(*place))
        return self._seen[place]

    @cached_property
    def _versions(self) -> list[tuple[int, Versions]]:
        found: list[tuple[int, Versions]] = []
        for place, event in enumerate(self.events):
            if isinstance(event.body, TaskStarted):
                found.append((place, Versions.started(event.body)))
            elif isinstance(event.body, DriftCrossed) and found:
                found.append((place, found[-1][1].crossed(event.body, event.envelope.ext)))
        return found

    def _walk(self) -> None:
        for place, event in enumerate(self.events):
            self._messages.take(event)
            if isinstance(event.body, ContextBuilt):
                turn, offered = event.envelope.turn, self._offered(event, place)
                self.contexts[turn] = Context(turn, place, event, event.body, offered)

    def _offered(self, event: Event, place: int) -> bytes | None:
        held = self.versions(place)
        return asked_tools(event.envelope.ext, None if held is None else held.tools)


def read_turns(log: Log, topic: str, trajectory_id: str, blobs: BlobStore) -> Turns:
    """Reads the trajectory and what it inherits. Blocks. Raises InputError for one that is not there."""
    own = [event for event, _ in read_history(log, topic, trajectory_id)[1]]
    if not own:
        raise InputError(f"no trajectory {trajectory_id!r} in {topic}", hint="see: tracklog list")
    return Turns(trajectory_id, read_inherited(log, topic, own), own, blobs)
