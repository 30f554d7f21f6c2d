"""What a client may say: the event types of a run that goes on elsewhere, as JSON (DESIGN §4).

The fields are those of the Avro schemas. Where a schema has a body, the client gives JSON: a text is kept as it is, all
else as JSON text. What only the server can know is left out and filled in: hashes, seqs, turns, causes, edits.

    ContextBuilt, ModelReplied, Authorized, ToolIntent, ToolResult, Observed, MessageReceived, TaskEnded

Not among them is what asks somebody else to act (approvals, messages to others, timers), since nobody would bring the
answer to the client, and what the server or an owner of the whole run writes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue

from tracklog.schemas import limits
from tracklog.schemas.values import (
    Count,
    Effect,
    Ending,
    Int64,
    Millis,
    Name,
    ObservedKind,
    ResultStatus,
    Role,
    Ruling,
    Text,
    ToolCall,
    TrajectoryId,
    Usage,
)

__all__ = ["RECORDED", "Batch", "Given", "GivenEvent", "Release", "Start"]

RECORDED: Final = "recorded"
"""The policy of an agent that does not name one."""

ClientId = Annotated[str, Field(min_length=1, max_length=100, pattern=r"^[A-Za-z0-9_.:@-]+$")]
Number = Annotated[int, Field(ge=0, lt=2**53)]
"""Of an event among those that its client has recorded of the trajectory, from 0. JavaScript can count so far."""
BarrierAsked = Literal["replicated", "fsync"]
NAMED_MAX: Final = 10_000
"""Messages that a context may name one by one."""
FILE_CHARS_MAX: Final = 512 * 1024
"""Of a prompt, and of tool schemas: they go to the blob store."""


class Given(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Call(Given):
    call_id: Name
    tool: Name
    arguments: str = ""

    @property
    def value(self) -> ToolCall:
        return ToolCall(call_id=self.call_id, tool=self.tool, arguments=self.arguments)


class Tokens(Given):
    input_tokens: Count = 0
    output_tokens: Count = 0
    cached_tokens: Count = 0
    reasoning_tokens: Count = 0

    @property
    def value(self) -> Usage:
        return Usage(**self.model_dump())


def _a_reply(message: dict[str, Any]) -> dict[str, Any]:
    if message.get("role") != "assistant":
        raise ValueError('a reply is the message of the model: {"role": "assistant", ...}')
    calls = message.get("tool_calls") or []
    if not isinstance(calls, list) or not all(isinstance(call, dict) for call in calls):
        raise ValueError("tool_calls of a reply is a list of calls")
    if not all(isinstance(call.get("id"), str) for call in calls):
        raise ValueError("each call of a reply has an id, a text")
    return message


def _says(message: JsonValue) -> JsonValue:
    if message is None or isinstance(message, bool | int | float):
        raise ValueError("a message says a text, or a list of parts")
    return message


class ContextBuilt(Given):
    """Before each call of the model: a turn begins. Without `numbers` and `seqs` the context is all that was said."""

    type: Literal["ContextBuilt"]
    numbers: Annotated[tuple[Number, ...], Field(max_length=NAMED_MAX)] | None = None
    """The messages of the context, in order, by the numbers under which this client recorded them."""
    seqs: Annotated[tuple[Number, ...], Field(max_length=NAMED_MAX)] | None = None
    """The same by seq: also those that another client recorded."""


class ModelReplied(Given):
    """`reply` is the message of the model, verbatim. `tool_calls` default to the calls in it."""

    type: Literal["ModelReplied"]
    reply: Annotated[dict[str, JsonValue], AfterValidator(_a_reply)]
    tool_calls: Annotated[tuple[Call, ...], Field(max_length=limits.CALLS_PER_TURN_MAX)] | None = None
    stop_reason: Text = ""
    usage: Tokens = Tokens()
    cost_micro_usd: Count | None = None
    model_served: Text = ""
    sampling_seed: Int64 | None = None
    duration_ms: Millis | None = None


class Authorized(Given):
    """What the client's own rules said of a call. Nobody is asked here, so there is no `hold`."""

    type: Literal["Authorized"]
    call_id: Name
    ruling: Literal[Ruling.ALLOW, Ruling.DENY]
    policy_version: Name = RECORDED
    rule: Text = ""


class ToolIntent(Given):
    """The client is about to run a tool by itself: nobody else will."""

    type: Literal["ToolIntent"]
    call_id: Name
    tool: Name
    tool_version: Text = ""
    arguments: str | dict[str, JsonValue]
    effect: Effect
    idempotency_key: Text = ""
    place: Literal["recorded"] = "recorded"


class ToolResult(Given):
    """What came of it, as the model is given it; also of a call that was denied."""

    type: Literal["ToolResult"]
    call_id: Name
    status: ResultStatus
    output: JsonValue = ""
    duration_ms: Millis | None = None


class Observed(Given):
    """Anything else that the agent read: a time, a number drawn, the outcome of a step."""

    type: Literal["Observed"]
    kind: ObservedKind
    name: Name
    occurrence: Count
    value: JsonValue


class MessageReceived(Given):
    """Something said to the agent: by the user, the system, another agent."""

    type: Literal["MessageReceived"]
    peer: Name = "user"
    role: Role = Role.USER
    message: Annotated[JsonValue, AfterValidator(_says)]


class TaskEnded(Given):
    """The last event. A call with an intent and no result must be given one first, perhaps `unknown`."""

    type: Literal["TaskEnded"]
    ending: Ending
    result: JsonValue = None
    reason: Text = ""


GivenEvent = Annotated[
    ContextBuilt | ModelReplied | Authorized | ToolIntent | ToolResult | Observed | MessageReceived | TaskEnded,
    Field(discriminator="type"),
]


class _Request(Given):
    client: ClientId
    """Who records: one program at a time, under the same name again when it is started anew."""
    lease_s: Annotated[int, Field(ge=1)] | None = None
    """Seconds after its last event in which no other client may go on with the trajectory."""
    barrier: BarrierAsked | None = None
    """How durable the events must be before the answer. Default: as durable as the topic gives; more is an error."""


class Start(_Request):
    """A trajectory begins: its client's event number 0."""

    id: TrajectoryId
    tenant: Annotated[str, Field(min_length=1, max_length=200)] = "default"
    agent: Name
    task: Annotated[str, Field(min_length=1)]
    model: Text = ""
    model_version: Text = ""
    sampling: Annotated[Mapping[Name, Text], Field(max_length=limits.LABELS_MAX)] = Field(default_factory=dict)
    prompt: Annotated[str, Field(max_length=FILE_CHARS_MAX)] | None = None
    """The system prompt: the first message of each context."""
    tools: Annotated[tuple[dict[str, JsonValue], ...], Field(max_length=1000)] | None = None
    """The tool schemas that the model is shown."""
    labels: Annotated[Mapping[Name, Text], Field(max_length=limits.LABELS_MAX)] = Field(default_factory=dict)
    conversation_id: Text | None = None
    trace_parent: Text | None = None
    code_version: Text = ""


class Batch(_Request):
    """Events in order. `first` is the number of the first of them."""

    first: Number
    events: Annotated[tuple[GivenEvent, ...], Field(min_length=1)]


class Release(Given):
    client: ClientId
