"""What a session asks of a model, and what it gets: one request, one answer, whoever the model is.

Messages are in the chat-completions form. A model client retries by itself; what it returns is recorded once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import orjson

from tracklog.schemas import limits
from tracklog.schemas.errors import ModelMalformed
from tracklog.schemas.values import ToolCall, Usage

__all__ = [
    "Model",
    "ModelAnswer",
    "ModelRequest",
    "OnToken",
    "Reply",
    "begin_again",
    "calls_of",
    "used_call_ids",
    "with_call_ids",
]

ARGUMENTS_BYTES_MAX: Final = limits.EVENT_BYTES_MAX - 4 * limits.BODY_INLINE_BYTES_MAX
"""Bytes of arguments in all calls of one reply: they lie in the event itself, never in the blob store."""

OnToken = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """What the model is to see. `tools` are definitions (`ToolSet.definitions`), `sampling` has recorded texts, all of
    them: a model's own are for a request that has none.

    `replies_before` says how many replies of this trajectory came before this one, for models that answer in order.
    """

    messages: tuple[Mapping[str, Any], ...]
    tools: tuple[Mapping[str, Any], ...] = ()
    sampling: Mapping[str, str] = field(default_factory=dict)
    replies_before: int | None = None


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """One reply. `message` is verbatim; `tool_calls` has its calls in order, under ids that are unique in the run.

    `served` is the model version that the endpoint says it was; `cost_micro_usd` None: not known.
    """

    message: Mapping[str, Any]
    tool_calls: tuple[ToolCall, ...] = ()
    stop_reason: str = ""
    usage: Usage = field(default_factory=Usage)
    cost_micro_usd: int | None = None
    served: str = ""
    seed: int | None = None
    duration_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    """A model's reply. `message` goes into the next context; its calls have ids that are unique in the run."""

    message: Mapping[str, Any]
    tool_calls: tuple[ToolCall, ...]
    stop_reason: str = ""

    @property
    def text(self) -> str:
        content = self.message.get("content")
        return content if isinstance(content, str) else ""


class Model(Protocol):
    """Something that replies. `name` is what TaskStarted records.

    What one has as `sampling` (texts by name) is recorded with it. One that has `named(name) -> Model` can be pinned
    to its recorded name, and be forked onto another one.
    """

    @property
    def name(self) -> str: ...

    async def reply(self, request: ModelRequest, *, on_token: OnToken | None = None) -> ModelAnswer:
        """The answer. `on_token` is given the text as it comes, of every try: what counts is the answer. One that has a
        method `begin` is told when a try begins.

        Raises ModelError: ModelUnavailable, ModelRefused, ModelMalformed, RecordingEnded.
        """


def begin_again(on_token: OnToken) -> None:
    """Tells whoever hears a reply that a try of it begins: what it was given before is void."""
    begin = getattr(on_token, "begin", None)
    if begin is not None:
        begin()


def used_call_ids(messages: Iterable[Mapping[str, Any]]) -> set[str]:
    """The ids of all calls in the messages."""
    calls = (call for message in messages for call in message.get("tool_calls") or ())
    return {call["id"] for call in calls if isinstance(call, Mapping) and isinstance(call.get("id"), str)}


def calls_of(message: Mapping[str, Any], used: Iterable[str] = ()) -> tuple[ToolCall, ...]:
    """The calls in an assistant message; arguments stay the text they are.

    Models give no ids, one id twice, or the id of an earlier turn: those that are in `used`, or came before in
    this message, get `~2`, `~3`, ... behind them. Raises ModelMalformed for what is no call.
    """
    raw = message.get("tool_calls") or ()
    if not isinstance(raw, list | tuple):
        raise ModelMalformed("the reply's tool_calls is no list", hint="does the endpoint speak chat completions?")
    if len(raw) > limits.CALLS_PER_TURN_MAX:
        raise ModelMalformed(f"one reply has {len(raw)} calls", hint=f"at most {limits.CALLS_PER_TURN_MAX} fit")
    taken = set(used)
    calls = tuple(_call(one, position, taken) for position, one in enumerate(raw))
    size = sum(len(call.arguments.encode("utf-8", "surrogatepass")) for call in calls)
    if size > ARGUMENTS_BYTES_MAX:
        raise ModelMalformed(
            f"the calls of one reply have {size} bytes of arguments",
            hint=f"at most {ARGUMENTS_BYTES_MAX} fit: have the model write large content in parts",
        )
    return calls


def with_call_ids(message: Mapping[str, Any], calls: Sequence[ToolCall]) -> dict[str, Any]:
    """The message with its calls under the ids that were given to them: as later contexts show it.

    Tool messages answer calls by id, so an endpoint takes neither a missing id nor one that means two calls.
    """
    raw = message.get("tool_calls") or ()
    if not raw:
        return dict(message)
    named = [{**one, "id": call.call_id} for one, call in zip(raw, calls, strict=True)]
    return {**message, "tool_calls": named}


def _call(raw: object, position: int, taken: set[str]) -> ToolCall:
    function = raw.get("function") if isinstance(raw, Mapping) else None
    if not isinstance(raw, Mapping) or not isinstance(function, Mapping):
        raise ModelMalformed(f"call {position} of the reply has no function", hint="only function calls are known")
    name = function.get("name")
    if not isinstance(name, str) or not 0 < len(name) <= limits.TEXT_FIELD_CHARS_MAX:
        raise ModelMalformed(f"call {position} of the reply names no tool", hint="ask the model again")
    arguments = function.get("arguments")
    text = arguments if isinstance(arguments, str) else _text(arguments)
    return ToolCall(call_id=_unique(raw.get("id"), position, taken), tool=name, arguments=text)


def _text(arguments: object) -> str:
    """Some servers give the arguments as an object, and none at all for a tool without parameters."""
    return "" if arguments is None else orjson.dumps(arguments).decode()


def _unique(given: object, position: int, taken: set[str]) -> str:
    usable = isinstance(given, str) and 0 < len(given) <= limits.TEXT_FIELD_CHARS_MAX // 2
    first = given if usable and isinstance(given, str) else f"call-{position + 1}"
    unique, number = first, 1
    while unique in taken:
        number += 1
        unique = f"{first}~{number}"
    taken.add(unique)
    return unique
