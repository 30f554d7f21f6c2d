"""Inbox records: how everyone but the owner reaches a trajectory (DESIGN §4, §9)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tracklog.schemas.events import Annotated, TaskStarted
from tracklog.schemas.values import (
    Body,
    Choice,
    Count,
    Hash,
    Micros,
    Millis,
    Name,
    Ref,
    ResultStatus,
    Role,
    Settled,
    TargetKind,
    Text,
    Value,
)


class InboxBody(Value):
    """Base of all inbox records; the class name is the record's type."""


class Submit(InboxBody):
    """A new trajectory for the workers: the task is what `TaskStarted` will say."""

    task: TaskStarted


class Outcome(InboxBody):
    """What became of a dispatched call. `intent_hash` binds it to one accepted intent."""

    call_id: Name
    intent_hash: Hash
    slot: Count
    status: ResultStatus
    output: Body
    settled: Settled
    duration_ms: Millis | None = None


class Decision(InboxBody):
    """A person's answer to a held call; quotes the hash of the accepted `ApprovalRequested`."""

    call_id: Name
    request_hash: Hash
    approver: Name
    choice: Choice
    reason: Text = ""
    arguments: Body | None = None
    answer: Body | None = None


class Message(InboxBody):
    peer: Name
    role: Role
    message: Body
    about: Ref | None = None


class Cancel(InboxBody):
    by: Name
    reason: Text = ""


class TimerDue(InboxBody):
    timer_id: Name
    due_at: Micros | None = None


class Settlement(InboxBody):
    """A person's word on a call in doubt."""

    call_id: Name
    intent_hash: Hash
    by: Name
    status: ResultStatus
    output: Body
    reason: Text = ""


class Annotation(InboxBody):
    target: TargetKind
    turn: Count | None = None
    call_id: Text | None = None
    name: Name
    value: Body
    source: Name
    evaluator_version: Text = ""
    client_id: Text = ""

    def event(self) -> Annotated:
        """The event that takes this record into the trajectory; checks the target."""
        return Annotated(**self.model_dump())


INBOX_TYPES: Final[Mapping[str, type[InboxBody]]] = {
    cls.__name__: cls for cls in (Submit, Outcome, Decision, Message, Cancel, TimerDue, Settlement, Annotation)
}
