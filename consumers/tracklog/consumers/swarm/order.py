"""The one total order of the events of several trajectories: by Lamport time, then by trajectory id (DESIGN §12). Pure.

A Lamport time is larger than those of all events that its event follows from, in its own trajectory and in others, so
the order agrees with causes. Records that say otherwise are found.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tracklog.schemas.codec import Event
from tracklog.schemas.events import MessageReceived, MessageSent, TaskEnded
from tracklog.schemas.spawn import FROM, ending_of

__all__ = ["Misfit", "misfits", "place_of", "total_order"]

Place = tuple[str, int]


class Misfit(NamedTuple):
    """An event that does not fit one of another trajectory: its cause comes later, or it heard what was not said."""

    trajectory_id: str
    seq: int
    turn: int
    what: str


def total_order(histories: Iterable[Sequence[Event]]) -> list[Event]:
    """All events of these trajectories; each is in the order of its seq."""
    events = [event for history in histories for event in history]
    return sorted(events, key=lambda event: (event.envelope.lamport, event.envelope.trajectory_id, event.envelope.seq))


def place_of(event: Event) -> Place:
    return event.envelope.trajectory_id, event.envelope.seq


def misfits(order: Sequence[Event]) -> list[Misfit]:
    """In order. Causes in trajectories that are not among these are not looked at."""
    at = {place_of(event): index for index, event in enumerate(order)}
    last = dict[str, int]()
    found = list[Misfit]()
    for index, event in enumerate(order):
        name, seq = place_of(event)
        if seq <= last.get(name, -1):
            found.append(_misfit(event, f"it comes after event {last[name]} of its own trajectory"))
        last[name] = seq
        for cause in event.envelope.causes:
            if at.get((cause.trajectory_id, cause.seq), -1) > index:
                found.append(_misfit(event, f"its cause, event {cause.seq} of {cause.trajectory_id}, comes later"))
        wrong = _misheard(event, order, at)
        if wrong:
            found.append(_misfit(event, wrong))
    return found


def _misheard(event: Event, order: Sequence[Event], at: dict[Place, int]) -> str:
    """Whether a message is another one than its sender's record says, "" when it is not."""
    body, taken = event.body, event.envelope.inbox_id
    if not isinstance(body, MessageReceived) or taken is None:
        return ""
    if ending_of(event) is not None:
        places = [(ref.trajectory_id, ref.seq) for ref in event.envelope.causes]
        ends = [order[at[place]].body for place in places if place in at]
        said = {one.result.hash for one in ends if isinstance(one, TaskEnded) and one.result is not None}
        return "" if not said or body.message.hash in said else f"{body.peer} ended with another result"
    place = at.get((taken.source.removeprefix(FROM), taken.seq))
    sent = None if place is None else order[place].body
    if not isinstance(sent, MessageSent):
        return ""
    return "" if sent.message.hash == body.message.hash else f"{body.peer} sent another message"


def _misfit(event: Event, what: str) -> Misfit:
    return Misfit(event.envelope.trajectory_id, event.envelope.seq, event.envelope.turn, what)
