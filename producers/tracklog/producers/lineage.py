"""What a fork inherits: the events of its origins up to where it left them, read from the log (DESIGN §7)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from tracklog.infra.log.port import Log
from tracklog.producers.cursor import ASIDE
from tracklog.producers.history import read_history, started_of
from tracklog.schemas import events as ev
from tracklog.schemas.codec import Event
from tracklog.schemas.errors import InputError, UnknownSchema
from tracklog.schemas.values import Ref

__all__ = ["Lineage", "fork_point", "read_inherited", "read_lineage"]

ORIGINS_MAX: Final = 100
"""Forks of forks of forks."""


class Lineage(NamedTuple):
    """`inherited` is oldest first; `beyond` are the events that the origin went on with after the fork."""

    inherited: tuple[Event, ...]
    beyond: tuple[Event, ...] = ()


def read_inherited(log: Log, topic: str, events: Sequence[Event]) -> tuple[Event, ...]:
    """What a trajectory with these accepted events inherits; nothing, for one that is no fork. Blocks.

    Raises InputError when an origin is not in this log.
    """
    origin = origin_of(events)
    return () if origin is None else read_lineage(log, topic, origin).inherited


def read_lineage(log: Log, topic: str, origin: Ref) -> Lineage:
    """What a fork that left its origin after this event inherits. Blocks. Raises InputError."""
    inherited: tuple[Event, ...] = ()
    beyond: tuple[Event, ...] = ()
    at: Ref | None = origin
    for _ in range(ORIGINS_MAX):
        if at is None:
            return Lineage(inherited, beyond)
        events = _known([event for event, _ in read_history(log, topic, at.trajectory_id)[1]], at)
        if at is origin:
            beyond = tuple(events[at.seq + 1 :])
        inherited = (*events[: at.seq + 1], *inherited)
        at = origin_of(events)
    raise InputError(f"trajectory {origin.trajectory_id!r} has more than {ORIGINS_MAX} origins, one after another")


def origin_of(events: Sequence[Event]) -> Ref | None:
    """Where the trajectory was forked from, None for one that was not."""
    started = started_of(events)
    return None if started is None else started.origin


def fork_point(record: Sequence[Event], turn: int) -> Ref:
    """The last event that a fork at this turn inherits: the one before what was said for its context.

    `record` is all of the origin's, with what it inherits itself. Raises InputError for a turn that is not there.
    """
    contexts = [n for n, event in enumerate(record) if isinstance(event.body, ev.ContextBuilt)]
    at = next((n for n in contexts if record[n].envelope.turn == turn), None)
    if at is None:
        last = record[contexts[-1]].envelope.turn if contexts else 0
        raise InputError(f"there is no turn {turn} to fork at", hint=f"the turns of this trajectory are 1 to {last}")
    for before in range(at - 1, -1, -1):
        if _said_by_program(record[before]):
            at = before
        elif type(record[before].body) not in ASIDE:
            break
    envelope = record[at - 1].envelope
    return Ref(trajectory_id=envelope.trajectory_id, seq=envelope.seq)


def _said_by_program(event: Event) -> bool:
    return isinstance(event.body, ev.MessageReceived) and event.envelope.inbox_id is None


def _known(events: list[Event], at: Ref) -> list[Event]:
    if len(events) <= at.seq:
        raise InputError(
            f"event {at.seq} of trajectory {at.trajectory_id!r}, which a fork inherits, is not in this log",
            hint="bring the origin into the same log",
        )
    unknown = next((event for event in events if event.body is None), None)
    if unknown is not None:
        raise UnknownSchema(
            f"event {unknown.envelope.seq} of {at.trajectory_id!r} is a {unknown.name} of a version not known here",
            hint="go on with a Tracklog that knows it",
        )
    return events
