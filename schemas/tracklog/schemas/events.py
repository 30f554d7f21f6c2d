"""The events of a trajectory: one class and one Avro schema per type (DESIGN §4).

A class here is the body of an event; the envelope is added by the writer. Values check themselves when
built, so an event that breaks its own rules cannot exist.
"""

from __future__ import annotations

import typing
from collections.abc import Mapping
from typing import Final, Self

from pydantic import Field, model_validator

from tracklog.schemas import limits
from tracklog.schemas.values import (
    BlobRef,
    Body,
    Budgets,
    Choice,
    ContextEdit,
    Count,
    Driver,
    Effect,
    Ending,
    Hash,
    Id16,
    InboxId,
    Int64,
    Micros,
    Millis,
    Name,
    ObservedKind,
    OnExpiry,
    Place,
    Ref,
    ResultStatus,
    Role,
    Ruling,
    Settled,
    SnapshotKind,
    TargetKind,
    Text,
    ToolCall,
    Usage,
    Value,
)

Labels = typing.Annotated[Mapping[str, Text], Field(max_length=limits.LABELS_MAX)]


class EventBody(Value):
    """Base of all event bodies; the class name is the event's type."""


class OwnershipClaimed(EventBody):
    """Raises the epoch by one when accepted; `nonce` is drawn anew at every start of a process (DESIGN §8, 1)."""

    owner: Name
    nonce: Id16
    driver: Driver
    reason: Text = ""


class OwnershipReleased(EventBody):
    owner: Name
    nonce: Id16
    reason: Text = ""


class TaskStarted(EventBody):
    """What is to be done, by which versions of what. `source` names an imported run: file hash, line, step."""

    driver: Driver
    task: Body
    agent: Name
    model: Text = ""
    model_version: Text = ""
    sampling: Mapping[str, str] = Field(default_factory=dict)
    prompt_template: BlobRef | None = None
    tool_schemas: BlobRef | None = None
    workspace: BlobRef | None = None
    swarm: Text | None = None
    parent: Ref | None = None
    origin: Ref | None = None
    inherited_turn: Count = 0
    budgets: Budgets = Budgets()
    labels: Labels = Field(default_factory=dict)
    conversation_id: Text | None = None
    on_behalf_of: Text | None = None
    trace_parent: Text | None = None
    code_version: Text = ""
    source: Text | None = None


class ContextBuilt(EventBody):
    """The messages a model call is about to see, as edits of the previous context: storage stays linear."""

    edits: tuple[ContextEdit, ...]
    retrieved: tuple[BlobRef, ...] = ()
    context_hash: Hash
    messages: Count
    rule_version: Name


class ModelReplied(EventBody):
    reply: Body
    tool_calls: typing.Annotated[tuple[ToolCall, ...], Field(max_length=limits.CALLS_PER_TURN_MAX)] = ()
    stop_reason: Text = ""
    usage: Usage = Usage()
    cost_micro_usd: Count | None = None
    model_served: Text = ""
    sampling_seed: Int64 | None = None
    duration_ms: Millis | None = None

    @model_validator(mode="after")
    def _call_ids_differ(self) -> Self:
        if len({call.call_id for call in self.tool_calls}) != len(self.tool_calls):
            raise ValueError("two tool calls of one reply have the same call_id: give each its own")
        return self


class Authorized(EventBody):
    call_id: Name
    ruling: Ruling
    policy_version: Name
    rule: Text = ""
    budget_remaining: Budgets | None = None


class ApprovalRequested(EventBody):
    """A held call. The hash of this event is what a decision quotes."""

    call_id: Name
    argument_hash: Hash
    may_approve: tuple[Name, ...]
    expires_at: Micros | None = None
    on_expiry: OnExpiry = OnExpiry.DENY
    reason: Text = ""


class Answer(Value):
    """What a person decided about a held call; quotes the hash of the accepted `ApprovalRequested`."""

    call_id: Name
    request_hash: Hash
    approver: Name
    choice: Choice
    reason: Text = ""
    arguments: Body | None = None
    answer: Body | None = None

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if (self.choice is Choice.EDIT) != (self.arguments is not None):
            raise ValueError("arguments are given with the choice edit, and only then")
        if (self.choice is Choice.ANSWER) != (self.answer is not None):
            raise ValueError("an answer is given with the choice answer, and only then")
        return self


class ApprovalResolved(Answer, EventBody):
    """The decision that was taken from the inbox."""


class ToolIntent(EventBody):
    """The durable statement that an effect is about to happen."""

    call_id: Name
    tool: Name
    tool_version: Text = ""
    arguments: Body
    effect: Effect
    idempotency_key: Text = ""
    key_ttl_ms: Millis | None = None
    not_after: Micros | None = None
    place: Place
    request_hash: Hash | None = None

    @model_validator(mode="after")
    def _can_be_settled(self) -> Self:
        if self.place is Place.RECORDED:
            return self
        if self.not_after is None and self.effect is not Effect.READONLY:
            raise ValueError("an intent that will be run needs not_after: until when it may be started")
        if self.effect is Effect.IDEMPOTENT and (not self.idempotency_key or self.key_ttl_ms is None):
            raise ValueError("an idempotent call needs idempotency_key and key_ttl_ms: how long the tool remembers it")
        return self


class ToolResult(EventBody):
    call_id: Name
    status: ResultStatus
    output: Body
    settled: Settled
    duration_ms: Millis | None = None
    attempts: Count = 0


class InDoubt(EventBody):
    call_id: Name
    tried: Text
    asked: Text = ""


class Escalated(EventBody):
    call_id: Name
    tried: Text
    asked: Name


class Compacted(EventBody):
    first_turn: Count
    last_turn: Count
    summary: Body
    rule_version: Name

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.last_turn < self.first_turn:
            raise ValueError("last_turn is before first_turn")
        return self


class CheckpointTaken(EventBody):
    """Written after both snapshots are durable. `head_hash` is the hash of the event at `seq_covered`."""

    seq_covered: Count
    epoch_covered: Count
    head_hash: Hash
    state: BlobRef
    workspace: BlobRef | None = None
    kind: SnapshotKind = SnapshotKind.FULL
    base_seq: Count | None = None


class Observed(EventBody):
    kind: ObservedKind
    name: Name
    occurrence: Count
    value: Body


class MessageSent(EventBody):
    peer: Name
    message: Body
    about: Ref | None = None


class MessageReceived(EventBody):
    peer: Name
    role: Role
    message: Body
    about: Ref | None = None


class TimerSet(EventBody):
    """Due at a turn (logical) or at a time (wall): exactly one of them."""

    timer_id: Name
    due_turn: Count | None = None
    due_at: Micros | None = None

    @model_validator(mode="after")
    def _one_due(self) -> Self:
        if (self.due_turn is None) == (self.due_at is None):
            raise ValueError("a timer is due at a turn or at a time: give exactly one of due_turn, due_at")
        return self


class TimerFired(EventBody):
    timer_id: Name


class Judgement(Value):
    """A judgement about a trajectory, a turn or a call; may come after the end."""

    target: TargetKind
    turn: Count | None = None
    call_id: Text | None = None
    name: Name
    value: Body
    source: Name
    evaluator_version: Text = ""
    client_id: Text = ""

    @model_validator(mode="after")
    def _aimed(self) -> Self:
        if (self.target is TargetKind.TURN) != (self.turn is not None):
            raise ValueError("turn is given with the target turn, and only then")
        if (self.target is TargetKind.CALL) != (self.call_id is not None):
            raise ValueError("call_id is given with the target call, and only then")
        return self


class Annotated(Judgement, EventBody):
    """A judgement that was taken from the inbox."""


class InboxRefused(EventBody):
    refused: InboxId
    kind: Name
    reason: Text


class DriftCrossed(EventBody):
    old_model: Text
    new_model: Text
    old_prompt: Hash | None = None
    new_prompt: Hash | None = None
    old_tools: Hash | None = None
    new_tools: Hash | None = None


class CancelRequested(EventBody):
    by: Name
    reason: Text = ""


class TaskEnded(EventBody):
    ending: Ending
    result: Body | None = None
    reason: Text = ""


EVENT_TYPES: Final[Mapping[str, type[EventBody]]] = {
    "OwnershipClaimed": OwnershipClaimed,
    "OwnershipReleased": OwnershipReleased,
    "TaskStarted": TaskStarted,
    "ContextBuilt": ContextBuilt,
    "ModelReplied": ModelReplied,
    "Authorized": Authorized,
    "ApprovalRequested": ApprovalRequested,
    "ApprovalResolved": ApprovalResolved,
    "ToolIntent": ToolIntent,
    "ToolResult": ToolResult,
    "InDoubt": InDoubt,
    "Escalated": Escalated,
    "Compacted": Compacted,
    "CheckpointTaken": CheckpointTaken,
    "Observed": Observed,
    "MessageSent": MessageSent,
    "MessageReceived": MessageReceived,
    "TimerSet": TimerSet,
    "TimerFired": TimerFired,
    "Annotated": Annotated,
    "InboxRefused": InboxRefused,
    "DriftCrossed": DriftCrossed,
    "CancelRequested": CancelRequested,
    "TaskEnded": TaskEnded,
}
