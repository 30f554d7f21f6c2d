"""What a dispatcher keeps of each trajectory: its head, and its dispatched calls that have no result. Pure.

A few fields instead of the whole state: a dispatcher follows every trajectory of its partitions. Which events are
accepted does not rest on the head's windows of known hashes (they name what is not), so it keeps none. Of events that
say nothing to it only the envelope is looked at, while they are what the log must accept next; any other is decoded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from tracklog.infra.log.port import Record
from tracklog.schemas import events as ev
from tracklog.schemas.codec import Event, glance
from tracklog.schemas.head import EMPTY_HEAD, Head, Verdict, advance, judge
from tracklog.schemas.lifecycle import lane_of
from tracklog.schemas.values import Place

__all__ = ["NEW", "Followed", "Intended", "follow", "intended", "passed"]

HEARD: Final = frozenset(
    {"OwnershipClaimed", "OwnershipReleased", "ToolIntent", "ToolResult", "Escalated", "CancelRequested", "TaskEnded"}
)
"""Events whose bodies say something to a dispatcher."""


class Intended(NamedTuple):
    """An accepted intent that is to be dispatched and has no result. `lane`: its place in the inbox's order."""

    trajectory_id: str
    tenant: str
    epoch: int
    seq: int
    lane: int
    hash: bytes
    intent: ev.ToolIntent
    escalated: bool = False


class Followed(NamedTuple):
    head: Head = EMPTY_HEAD
    calls: Mapping[str, Intended] = {}
    cancelled: bool = False
    ended: bool = False


NEW: Final = Followed()


def follow(known: Followed, event: Event) -> Followed:
    """What is known after a record; the same object when the record was not accepted."""
    judgement = judge(known.head, event)
    if judgement.verdict is not Verdict.ACCEPTED:
        return known
    head = advance(known.head, event, judgement)._replace(recent=())
    match event.body:
        case ev.ToolIntent() as intent if intent.place is Place.DISPATCH:
            return known._replace(head=head, calls={**known.calls, intent.call_id: intended(event, intent)})
        case ev.ToolResult(call_id=call_id) if call_id in known.calls:
            left = {name: one for name, one in known.calls.items() if name != call_id}
            return known._replace(head=head, calls=left)
        case ev.Escalated(call_id=call_id) if call_id in known.calls:
            asked = known.calls[call_id]._replace(escalated=True)
            return known._replace(head=head, calls={**known.calls, call_id: asked})
        case ev.CancelRequested():
            return known._replace(head=head, cancelled=True)
        case ev.TaskEnded():
            return known._replace(head=head, calls={}, ended=True)
        case _:
            return known._replace(head=head)


def passed(known: Followed, record: Record) -> Followed | None:
    """What is known after a record that is accepted and says nothing to a dispatcher, told by its envelope alone; None
    for one that is to be decoded."""
    head = known.head
    seen = glance(record.key, record.value, record.headers) if head.epoch > 0 else None
    if seen is None or seen.name in HEARD or seen.hash in head.lost:
        return None
    place = seen.place
    if (place.seq, place.epoch, place.prev_hash) != (head.seq + 1, head.epoch, head.hash):
        return None
    return known._replace(head=head._replace(seq=place.seq, hash=seen.hash))


def intended(event: Event, intent: ev.ToolIntent) -> Intended:
    envelope = event.envelope
    lane = lane_of(envelope.ext)
    return Intended(envelope.trajectory_id, envelope.tenant, envelope.epoch, envelope.seq, lane, event.hash, intent)
