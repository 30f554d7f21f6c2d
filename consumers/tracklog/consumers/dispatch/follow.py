"""What a dispatcher keeps of each trajectory: its head, and its dispatched calls that have no result. Pure.

A few fields instead of the whole state: a dispatcher follows every trajectory of its partitions. Which events are
accepted does not rest on the head's windows of known hashes (they name what is not), so it keeps none. Of events that
say nothing to it only the envelope is looked at, while they are what the log must accept next; any other is decoded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from tracklog.infra.log.port import Record
from tracklog.schemas import catalog
from tracklog.schemas import events as ev
from tracklog.schemas.catalog import Kind
from tracklog.schemas.chain import event_hash
from tracklog.schemas.codec import HEADER_HASH, SINGLE_OBJECT_MARK, Event, split_frame
from tracklog.schemas.head import EMPTY_HEAD, Head, Verdict, advance, judge
from tracklog.schemas.lifecycle import lane_of
from tracklog.schemas.skim import NO_EXT, Skim
from tracklog.schemas.stamp import avro_long
from tracklog.schemas.values import Place

__all__ = ["NEW", "Followed", "Intended", "Passing", "follow", "intended"]

HEARD: Final = frozenset(
    {"OwnershipClaimed", "OwnershipReleased", "ToolIntent", "ToolResult", "Escalated", "CancelRequested", "TaskEnded"}
)
"""Events whose bodies say something to a dispatcher."""
TENANTS_MAX: Final = 1000
"""Tenants whose names are known to be such; of others each event is decoded."""


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
_ONE_BYTE_LENGTH_MAX: Final = 63


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


class Passing:
    """The short way past events that only move the head. Of one reader."""

    def __init__(self) -> None:
        self._tenants: dict[bytes, str] = {}

    def decoded(self, event: Event) -> None:
        """Learns that a tenant's name is one."""
        tenant = event.envelope.tenant
        if len(self._tenants) < TENANTS_MAX and len(tenant) <= _ONE_BYTE_LENGTH_MAX:
            self._tenants[tenant.encode()] = tenant

    def passed(self, known: Followed, record: Record) -> Followed | None:
        """What is known after a record that is accepted and says nothing else; None for one that is to be decoded."""
        head, key, value = known.head, record.key, record.value
        if head.epoch == 0 or key is None or value is None or value[:2] != SINGLE_OBJECT_MARK:
            return None
        headers = dict(record.headers)
        fingerprint, payload = split_frame(value, headers)
        schema = catalog.by_fingerprint().get(fingerprint)
        if schema is None or schema.name in HEARD or schema.kind is not Kind.EVENTS:
            return None
        at = len(avro_long(len(key))) + len(key)
        tenant = self._tenants.get(payload[at + 1 : at + 1 + payload[at] // 2]) if at < len(payload) else None
        if tenant is None:
            return None
        skim = Skim(key.decode(), tenant)
        at_ext = skim.ext_at(payload, seq=head.seq + 1, epoch=head.epoch, prev_hash=head.hash)
        if at_ext is None or payload[at_ext : at_ext + 1] != NO_EXT:
            return None
        digest = event_hash(fingerprint, payload)
        if headers.get(HEADER_HASH) != digest or digest in head.lost:
            return None
        return known._replace(head=head._replace(seq=head.seq + 1, hash=digest))


def intended(event: Event, intent: ev.ToolIntent) -> Intended:
    envelope = event.envelope
    lane = lane_of(envelope.ext)
    return Intended(envelope.trajectory_id, envelope.tenant, envelope.epoch, envelope.seq, lane, event.hash, intent)
