"""What is said to trajectories, and what they make of it: decisions, timers, messages. Part of `Truth`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from tracklog.infra.log.port import Record
from tracklog.producers.approvals import EXPIRY
from tracklog.schemas import events as ev
from tracklog.schemas import inbox
from tracklog.schemas.codec import Event, InboxRecord
from tracklog.schemas.values import Choice

EARLY_US: Final = 3_100_000
"""A router may be ahead by so much."""


class Violation(Exception):
    """Something is not as it must always be."""


@dataclass(eq=False)
class Request:
    """An accepted request for approval, and what is said of it in the order of the inbox."""

    trajectory_id: str
    call_id: str
    hash: bytes
    body: ev.ApprovalRequested
    round: int
    decisions: list[inbox.Decision] = field(default_factory=list)
    resolved: ev.ApprovalResolved | None = None


class Said:
    """`on_asked` is called with each request for approval."""

    def __init__(self, now_us: Callable[[], int]) -> None:
        self.on_asked: Callable[[Request], None] = lambda _: None
        self._now_us = now_us
        self._requests: dict[bytes, Request] = {}
        self._latest: dict[tuple[str, str], Request] = {}
        self._timers: dict[tuple[str, str], int] = {}
        self._sent: dict[tuple[str, int], Event] = {}
        self._on_the_way: set[tuple[str, int]] = set()
        self._unheard: dict[tuple[str, str], list[int]] = {}

    @property
    def undelivered(self) -> list[str]:
        return [f"{name} {seq}" for name, seq in sorted(self._on_the_way)]

    def event(self, event: Event, record: Record) -> None:
        """An accepted event."""
        name, body = event.envelope.trajectory_id, event.body
        match body:
            case ev.ApprovalRequested():
                self._asked(name, event.hash, body)
            case ev.ApprovalResolved():
                self._resolved(name, event, body)
            case ev.ToolIntent() if body.tool.endswith("_held"):
                self._allowed(name, body)
            case ev.TimerSet() if body.due_at is not None:
                self._timers[name, body.timer_id] = body.due_at
            case ev.TimerFired():
                due_us = self._timers.pop((name, body.timer_id), None)
                if due_us is None:
                    raise Violation(f"timer {body.timer_id} of {name} went off, and was not set (any more)")
                if self._now_us() < due_us - EARLY_US:
                    raise Violation(f"timer {body.timer_id} of {name} went off before it was due")
            case ev.MessageSent():
                self._sent[name, event.envelope.seq] = event
                self._on_the_way.add((name, event.envelope.seq))
                self._unheard.setdefault((name, body.peer), []).append(event.envelope.seq)
            case ev.MessageReceived():
                self._heard(name, event)
            case _:
                pass

    def inbox(self, read: InboxRecord) -> None:
        body, envelope = read.body, read.envelope
        if isinstance(body, inbox.Decision) and body.request_hash in self._requests:
            self._requests[body.request_hash].decisions.append(body)
        elif isinstance(body, inbox.Message) and envelope.source.startswith("msg/"):
            self._on_the_way.discard((envelope.source.removeprefix("msg/"), envelope.source_seq))

    def _asked(self, name: str, hashed: bytes, body: ev.ApprovalRequested) -> None:
        before = self._latest.get((name, body.call_id))
        if before is not None and before.resolved is None:
            raise Violation(f"{body.call_id} is asked about twice")
        request = Request(name, body.call_id, hashed, body, 1 if before is None else before.round + 1)
        self._requests[hashed] = self._latest[name, body.call_id] = request
        self.on_asked(request)

    def _resolved(self, name: str, event: Event, body: ev.ApprovalResolved) -> None:
        request = self._latest.get((name, body.call_id))
        if request is None or request.hash != body.request_hash or request.resolved is not None:
            raise Violation(f"a decision about {body.call_id} is taken that answers no open request")
        request.resolved = body
        ends_us = request.body.expires_at
        if body.choice is Choice.EXPIRE and (ends_us is None or self._now_us() < ends_us - EARLY_US):
            raise Violation(f"the request about {body.call_id} expired before its time")
        if event.envelope.inbox_id is None:
            return  # its owner saw that nobody decided in time
        first = next((one for one in request.decisions if one.approver in (EXPIRY, *request.body.may_approve)), None)
        if first is None or (first.approver, first.choice) != (body.approver, body.choice):
            raise Violation(f"the decision about {body.call_id} is not the first that was made")

    def _allowed(self, name: str, body: ev.ToolIntent) -> None:
        request = self._latest.get((name, body.call_id))
        said = None if request is None else request.resolved
        if said is None or said.choice not in (Choice.APPROVE, Choice.EDIT):
            raise Violation(f"{body.call_id} is intended, and nobody approved it")

    def _heard(self, name: str, event: Event) -> None:
        taken = event.envelope.inbox_id
        if taken is None or not taken.source.startswith("msg/"):
            return
        sender = taken.source.removeprefix("msg/")
        sent = self._sent.get((sender, taken.seq))
        unheard = self._unheard.get((sender, name), [])
        if sent is None or taken.seq not in unheard:
            raise Violation(f"{name} heard message {taken.seq} of {sender}, which was not sent or was heard before")
        if unheard.pop(0) != taken.seq:
            raise Violation(f"{name} heard message {taken.seq} of {sender} before an earlier one")
        if event.envelope.lamport <= sent.envelope.lamport:
            raise Violation(f"{name} heard message {taken.seq} of {sender} before it was sent, by its Lamport time")
