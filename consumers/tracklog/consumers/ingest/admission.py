"""Whether what a client asks may be recorded, as the log stands. Pure.

A trajectory is recorded by one client at a time. Its lease is in the log: it begins with a claim, is as long as the
claim says, counts from the last event, and ends with a release. It keeps clients from getting in each other's way, no
more: of two that claim at once the log accepts one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from tracklog.consumers.ingest.planning import Item
from tracklog.consumers.ingest.recording import In, Recording, source_of
from tracklog.schemas.errors import InvalidEvent, LeaseHeld, TrajectoryEnded, TrajectoryFaulty
from tracklog.schemas.state import State
from tracklog.schemas.values import Driver

__all__ = ["Asked", "Author", "check_free", "check_next", "found_of", "is_seen", "may_record"]


class Author(NamedTuple):
    """Who asks: `owner` names the person and their client, `sees` says of a tenant whether they may."""

    owner: str
    sees: Callable[[str], bool]


class Asked(NamedTuple):
    """What is to be recorded, one event at least. `tenant` None: into a trajectory that is there already."""

    author: Author
    tenant: str | None
    lease_s: int
    items: Sequence[Item]

    @property
    def source(self) -> str:
        return source_of(self.author.owner)

    @property
    def first(self) -> int:
        return self.items[0].number


def is_seen(state: State, author: Author) -> bool:
    return state.head.seq >= 0 and author.sees(state.tenant)


def may_record(recording: Recording, state: State, asked: Asked) -> bool:
    """False when there is nothing to record into. Raises InvalidEvent, TrajectoryFaulty."""
    new = asked.tenant is not None and state.head.seq < 0
    if not new and not (is_seen(state, asked.author) and asked.tenant in (None, state.tenant)):
        return False
    others = recording.drivers - {Driver.INGEST}
    if others:
        raise InvalidEvent(
            f"trajectory {state.trajectory_id!r} is not recorded by clients: its driver is {min(others).value!r}",
            hint="record another trajectory",
        )
    if state.fault is not None:
        raise TrajectoryFaulty(
            f"trajectory {state.trajectory_id!r} is parked: event {state.fault.seq} is {state.fault.verdict}",
            hint=f"look at it with: tracklog verify {state.trajectory_id}",
        )
    return True


def found_of(recording: Recording, asked: Asked) -> list[In]:
    """Those of the events that are in. Raises InvalidEvent when something else is in under their number."""
    found = recording.found(asked.source, asked.first, len(asked.items))
    for item, known in zip(asked.items, found, strict=False):
        if item.digest != known.given:
            raise InvalidEvent(
                f"event {item.place}: number {item.number} of this client is in already, as another event "
                f"(seq {known.seq})",
                hint="what was sent is sent again unchanged; new events go under new numbers",
                details={"index": item.place, "number": item.number, "seq": known.seq},
            )
    return found


def check_next(recording: Recording, state: State, asked: Asked, missing: Sequence[Item], now_ms: int) -> None:
    """Raises TrajectoryEnded, LeaseHeld, and InvalidEvent when events before these are missing."""
    if state.ended:
        raise TrajectoryEnded(
            f"trajectory {state.trajectory_id!r} has ended ({state.status.value}); nothing can follow",
            details={"index": missing[0].place},
        )
    check_free(recording, state, asked.author.owner, now_ms)
    expected = recording.next_number(asked.source)
    if missing[0].number != expected:
        raise InvalidEvent(
            f"the next event of this client has the number {expected}, not {missing[0].number}",
            hint="send what is missing first",
            details={"next": expected},
        )


def check_free(recording: Recording, state: State, owner: str, now_ms: int) -> None:
    """Raises LeaseHeld when another client has it."""
    lease = recording.lease
    if not state.ended and lease.held_against(owner, now_ms):
        raise LeaseHeld(
            f"trajectory {state.trajectory_id!r} is being recorded by {lease.owner!r}, whose lease runs until "
            f"{lease.until_ms} (milliseconds since 1970 UTC), longer if it goes on",
            hint="wait until then, or have it released",
            details={"holder": lease.owner, "until_ms": lease.until_ms},
        )
