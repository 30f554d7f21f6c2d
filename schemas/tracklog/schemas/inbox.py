"""Inbox records: how everyone but the owner reaches a trajectory (DESIGN §4, §9)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tracklog.schemas.events import Annotated, Answer, Judgement, TaskStarted
from tracklog.schemas.values import (
    Body,
    Count,
    Hash,
    Micros,
    Millis,
    Name,
    Ref,
    ResultStatus,
    Role,
    Settled,
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


class Decision(Answer, InboxBody):
    """A person's answer to a held call."""


class Message(InboxBody):
    peer: Name
    role: Role
    message: Body
    about: Ref | None = None


class Cancel(InboxBody):
    by: Name
    reason: Text = ""


class Retry(InboxBody):
    """Lets a stopped trajectory go on: its cause was removed."""

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


class Annotation(Judgement, InboxBody):
    """Anyone's judgement, also after the end."""

    def event(self) -> Annotated:
        """The event that takes this record into the trajectory."""
        return Annotated(**self.model_dump())


INBOX_TYPES: Final[Mapping[str, type[InboxBody]]] = {
    cls.__name__: cls for cls in (Submit, Outcome, Decision, Message, Cancel, Retry, TimerDue, Settlement, Annotation)
}
