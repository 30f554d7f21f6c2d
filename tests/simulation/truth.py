"""What really happened, and what must always be so. Told of every record and every effect in its moment.

It judges by the log and the tools alone, never by what a process believes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from tests.simulation.said import EARLY_US, Said, Violation
from tracklog.consumers.dispatch.slots import EMPTY, Row, entered
from tracklog.infra.log.port import Record
from tracklog.producers.tools import CallContext
from tracklog.schemas import events as ev
from tracklog.schemas import inbox, ledger
from tracklog.schemas.codec import Event, decode_event, decode_inbox, decode_ledger
from tracklog.schemas.head import EMPTY_HEAD, Head, Verdict, advance, judge
from tracklog.schemas.lifecycle import EXT_PARKED, Parked
from tracklog.schemas.topics import Topics
from tracklog.schemas.values import Effect, Place, ResultStatus

__all__ = ["TOPICS", "Call", "Known", "Truth", "Violation"]

TOPICS: Final = Topics()
KNOWN: Final = (ResultStatus.OK, ResultStatus.EXPIRED, ResultStatus.ERROR)


@dataclass(eq=False)
class Call:
    """One accepted intent. `doomed`: slots that were taken when a cancel had been accepted."""

    name: str
    trajectory_id: str
    intent: ev.ToolIntent
    hash: bytes
    appended_us: int
    row: Row = EMPTY
    effects: int = 0
    outcomes: list[ResultStatus] = field(default_factory=list)
    result: ResultStatus | None = None
    escalated: bool = False
    under_way: int = 0
    refuses: bool = False
    doomed: set[int] = field(default_factory=set)
    answers_until_us: int = 0
    """Until when nobody is to be asked, as the tool has said that it will answer."""


@dataclass(eq=False)
class Known:
    head: Head = EMPTY_HEAD
    cancelled: bool = False
    ended: bool = False
    owner: str = ""
    parked: str = ""


class Truth:
    def __init__(self, told: Callable[[str], None], now_us: Callable[[], int]) -> None:
        self.calls: dict[str, Call] = {}
        self.trajectories: dict[str, Known] = {}
        self.on_escalated: Callable[[Call], None] = lambda _: None
        self.said: Final = Said(now_us)
        self._by_hash: dict[bytes, Call] = {}
        self._told = told
        self._now_us = now_us

    def landed(self, record: Record) -> None:
        if record.topic == TOPICS.events:
            self._event(record)
        elif record.topic == TOPICS.inbox:
            self._inbox(record)
        else:
            self._entry(record)

    def settled(self, person: bool) -> bool:
        """Whether everything has ended in the way in which it must."""
        if self.said.undelivered:
            return False
        open_calls = [one for one in self.calls.values() if one.result is None]
        if person:
            return not open_calls and all(one.ended for one in self.trajectories.values())
        asked = {one.trajectory_id for one in open_calls if one.escalated}
        done = all(one.ended or name in asked for name, one in self.trajectories.items())
        return done and all(one.escalated for one in open_calls)

    def left(self) -> str:
        calls = [one.name for one in self.calls.values() if one.result is None and not one.escalated]
        runs = [name for name, one in self.trajectories.items() if not one.ended]
        said = self.said.undelivered
        return f"calls {calls} have neither a result nor an open escalation; not ended: {runs}; undelivered: {said}"

    def sent(self, context: CallContext) -> Call:
        call_id, attempt = context.call_id, context.attempt
        call = self.calls.get(call_id)
        if call is None or call.intent.idempotency_key != context.idempotency_key:
            raise Violation(f"{call_id} is sent, and its intent was not accepted")
        if call.intent.place is Place.INLINE:
            return call
        readonly = call.intent.effect is Effect.READONLY
        if not readonly and not call.row.slots:
            raise Violation(f"{call_id} is sent, and nobody has taken a slot")
        if not readonly and call.intent.effect is not Effect.IDEMPOTENT and attempt == 1 and 1 in call.doomed:
            raise Violation(f"{call_id} is sent, and a cancel was accepted before its slot was taken")
        return call

    def happened(self, call: Call) -> None:
        """An effect has landed."""
        call.effects += 1
        self._told(f"effect {call.effects} of {call.name}")
        if call.intent.effect is Effect.READONLY:
            return
        if call.effects > 1:
            raise Violation(f"{call.name} has {call.effects} effects")
        if call.result in (ResultStatus.EXPIRED, ResultStatus.ERROR):
            raise Violation(f"{call.name} happened after its result said {call.result.value}")

    def _event(self, record: Record) -> None:
        assert record.key is not None
        event = decode_event(record.key, record.value, record.headers)
        known = self.trajectories.setdefault(record.key.decode(), Known())
        judgement = judge(known.head, event)
        known.head = advance(known.head, event, judgement)
        if judgement.fault:
            raise Violation(f"{record.key.decode()}: event {event.envelope.seq} is a fault, {judgement.verdict}")
        if judgement.verdict is not Verdict.ACCEPTED:
            return
        self._accepted(known, event, record)
        self.said.event(event, record)
        self._told(f"{record.key.decode()} {event.envelope.seq} {event.name}{_of(event.body)}")

    def _accepted(self, known: Known, event: Event, record: Record) -> None:
        body, name = event.body, event.envelope.trajectory_id
        if isinstance(body, ev.OwnershipClaimed):
            known.owner, known.parked = body.owner, ""
        elif isinstance(body, ev.OwnershipReleased):
            known.parked = event.envelope.ext.get(EXT_PARKED, Parked.LEFT)
        elif isinstance(body, ev.ToolIntent):
            call = Call(body.call_id, name, body, event.hash, record.timestamp_ms * 1000)
            if body.call_id in self.calls:
                raise Violation(f"{body.call_id} is intended twice")
            self.calls[body.call_id] = self._by_hash[event.hash] = call
        elif isinstance(body, ev.ToolResult):
            self._result(body)
        elif isinstance(body, ev.Escalated):
            if self.calls[body.call_id].intent.effect is Effect.READONLY:
                raise Violation(f"a person is asked about {body.call_id}, which has no effect")
            if self._now_us() < self.calls[body.call_id].answers_until_us:
                raise Violation(f"a person is asked about {body.call_id}, which its tool may still answer")
            self.calls[body.call_id].escalated = True
            self.on_escalated(self.calls[body.call_id])
        elif isinstance(body, ev.CancelRequested):
            known.cancelled = True
        elif isinstance(body, ev.TaskEnded):
            known.ended = True
            if any(one.result is None for one in self.calls.values() if one.trajectory_id == name):
                raise Violation(f"{name} has ended with an open call")

    def _result(self, body: ev.ToolResult) -> None:
        call = self.calls.get(body.call_id)
        if call is None:
            return  # it was refused, or a person answered in its place
        if call.result is not None:
            raise Violation(f"{call.name} has two results")
        call.result = body.status
        if call.intent.effect is Effect.READONLY:
            return
        if body.status in (ResultStatus.TIMEOUT, ResultStatus.UNKNOWN):
            raise Violation(f"{call.name} came out {body.status.value}, which says nothing about its effect")
        if body.status is ResultStatus.OK and call.effects != 1:
            raise Violation(f"{call.name} came out ok, and has {call.effects} effects")
        if body.status in (ResultStatus.EXPIRED, ResultStatus.ERROR) and call.effects:
            raise Violation(f"{call.name} came out {body.status.value}, and has {call.effects} effects")

    def _inbox(self, record: Record) -> None:
        read = decode_inbox(record.key, record.value, record.headers)
        body = read.body
        self.said.inbox(read)
        if not isinstance(body, inbox.Outcome):
            return
        call = self._by_hash[body.intent_hash]
        self._told(f"outcome of {call.name}: {body.status.value}, slot {body.slot}")
        happened = {one is ResultStatus.OK for one in (*call.outcomes, body.status) if one in KNOWN}
        call.outcomes.append(body.status)
        if len(happened) > 1 and call.intent.effect is not Effect.READONLY:
            raise Violation(
                f"the outcomes of {call.name} contradict each other: {[one.value for one in call.outcomes]}"
            )
        if call.intent.effect is Effect.READONLY or call.result is not None:
            return  # what is said when it has its result is refused, so it may rest on a ledger that was trimmed
        slot = call.row.slots[body.slot - 1] if 0 < body.slot <= len(call.row.slots) else None
        if slot is None or slot.tries == (body.status is ResultStatus.EXPIRED):
            raise Violation(f"{call.name} is reported {body.status.value} in slot {body.slot}, which says otherwise")

    def _entry(self, record: Record) -> None:
        read = decode_ledger(record.key, record.value, record.headers)
        call = self._by_hash.get(read.envelope.intent_hash)
        if call is None:
            raise Violation(f"the ledger has {read.name} of a call without an accepted intent")
        before, call.row = call.row, entered(call.row, read, record.timestamp_ms)
        if isinstance(read.body, ledger.Done) and read.body.status not in call.outcomes:
            raise Violation(f"Done of {call.name} says {read.body.status.value}, and no outcome said so before")
        last, until_us = call.row.last, call.row.pending_until
        if last is not None and until_us is not None and self._now_us() < (last.not_after or 0):
            call.answers_until_us = until_us - EARLY_US
        new = len(call.row.slots)
        if new > len(before.slots) and self.trajectories[call.trajectory_id].cancelled:
            call.doomed.add(new)
        self._told(f"ledger of {call.name}: {read.name} {read.envelope.slot}{'' if call.row != before else ' (void)'}")


def _of(body: object) -> str:
    call_id = getattr(body, "call_id", "")
    status = f" {body.status.value}" if isinstance(body, ev.ToolResult) else ""
    return f" {call_id}{status}" if call_id else ""
