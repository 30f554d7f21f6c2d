"""Messages to steps: what the readers of all recorded forms share.

Calls get ids that are unique in their run (models reuse ids within a run: 36 of the 120 airline runs do);
the id as recorded stays in the reply, which is kept verbatim.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import orjson

from tracklog.producers.importers.run import Content, Outcome, Prompt, Reply, Spoken, Step
from tracklog.producers.importers.shape import Message, content_of, shape_of
from tracklog.schemas import limits
from tracklog.schemas.context import message_hash
from tracklog.schemas.errors import ImportSourceError
from tracklog.schemas.values import ResultStatus, Role, ToolCall

FIXED_BYTES_MAX: Final = limits.EVENT_BYTES_MAX - 4 * limits.BODY_INLINE_BYTES_MAX
"""Bytes of one event that cannot go to the blob store: the arguments in a reply, what a shape adds."""

_SPEAKERS: Final[Mapping[Role, str]] = {Role.USER: "user", Role.SYSTEM: "system", Role.AGENT: "assistant"}


class Asked(NamedTuple):
    """A call as recorded. `call_id` None: the form gives calls no ids."""

    call_id: str | None
    tool: str
    arguments: str


class _Open(NamedTuple):
    call: ToolCall
    recorded_id: str


class Transcript:
    """Collects the steps of one run while its messages are read in order.

    Its methods raise ImportSourceError for what cannot be a run, without saying where: that is the reader's.
    """

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.prompt: Prompt | None = None
        self.task = ""
        self._open: list[_Open] = []
        self._used: set[str] = set()

    def system(self, message: Message) -> None:
        """A system message: the run's prompt when it is the first message, else something said."""
        if self.steps or self.prompt is not None:
            self.say("system", Role.SYSTEM, message)
            return
        content, shape = self._spoken(Role.SYSTEM, message)
        self.prompt = Prompt(content=content, seen=seen_hash(message), shape=shape)

    def user(self, message: Message) -> None:
        """A user turn; the first one is the task."""
        self.say("user", Role.USER, message)
        if not self.task:
            self.task = plain_text(message["content"])

    def say(self, peer: str, role: Role, message: Message) -> None:
        content, shape = self._spoken(role, message)
        self.steps.append(Spoken(peer=peer, role=role, content=content, seen=seen_hash(message), shape=shape))

    def reply(self, message: Message, asked: list[Asked]) -> None:
        """What the model said, and the calls in it."""
        if sum(len(one.arguments.encode()) for one in asked) > FIXED_BYTES_MAX:
            raise ImportSourceError(f"the calls of one reply have more than {FIXED_BYTES_MAX} bytes of arguments")
        if len(asked) > limits.CALLS_PER_TURN_MAX:
            raise ImportSourceError(f"one reply has {len(asked)} calls; at most {limits.CALLS_PER_TURN_MAX} fit")
        calls = tuple(self._call(one) for one in asked)
        text = orjson.dumps(message).decode()
        self.steps.append(Reply(message=text, calls=calls, seen=seen_hash(message)))

    def answer(self, recorded_id: str, message: Message, status: ResultStatus, duration_ms: int | None = None) -> None:
        """A message that carries the result of the oldest open call with that recorded id."""
        _require(message, "content")
        opened = self._close(recorded_id)
        plain = answer_message(recorded_id, opened.call.tool, message.get("content"))
        self.steps.append(
            Outcome(
                call_id=opened.call.call_id,
                content=content_of(message.get("content")),
                status=status,
                seen=seen_hash(message),
                shape=_bounded(shape_of(plain, message)),
                duration_ms=duration_ms,
            )
        )

    def answer_aside(self, text: str, status: ResultStatus, duration_ms: int | None = None) -> None:
        """The result of the one open call, known from elsewhere than the messages."""
        call = self._open.pop().call
        content = Content(text=text)
        self.steps.append(
            Outcome(call_id=call.call_id, content=content, status=status, seen=None, duration_ms=duration_ms)
        )

    @property
    def open_ids(self) -> list[str]:
        """Recorded ids of the calls without a result, oldest first."""
        return [opened.recorded_id for opened in self._open]

    def _spoken(self, role: Role, message: Message) -> tuple[Content, str]:
        _require(message, "content")
        plain = spoken_message(role, message["content"])
        return content_of(message["content"]), _bounded(shape_of(plain, message))

    def _call(self, asked: Asked) -> ToolCall:
        recorded = asked.call_id if asked.call_id is not None else f"action-{len(self._used) + 1}"
        unique, number = recorded, 1
        while unique in self._used:
            number += 1
            unique = f"{recorded}~{number}"
        self._used.add(unique)
        call = ToolCall(call_id=unique, tool=asked.tool, arguments=asked.arguments)
        self._open.append(_Open(call, recorded))
        return call

    def _close(self, recorded_id: str) -> _Open:
        for position, opened in enumerate(self._open):
            if opened.recorded_id == recorded_id:
                return self._open.pop(position)
        raise ImportSourceError(f"a result for call {recorded_id!r}, which is not open")


def spoken_message(role: Role, content: object) -> dict[str, Any]:
    """The plain message of something said."""
    return {"role": _SPEAKERS[role], "content": content}


def answer_message(call_id: str, tool: str, content: object) -> dict[str, Any]:
    """The plain message of a result."""
    return {"role": "tool", "tool_call_id": call_id, "name": tool, "content": content}


def plain_text(content: object) -> str:
    """The text of a content, for people: of a list of parts, the texts in it."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    texts = (part.get("text") for part in parts if isinstance(part, dict))
    return "\n".join(text for text in texts if isinstance(text, str))


def _require(message: Message, field: str) -> None:
    if field not in message:
        raise ImportSourceError(f"the field {field!r} is missing")


def seen_hash(message: Message) -> bytes:
    """The hash of a message as the model sees it."""
    ids = message.get("tool_call_ids")
    first = ids[0] if isinstance(ids, list) and ids else None
    return message_hash(
        message["role"],
        message.get("content"),
        message.get("tool_calls"),
        message.get("tool_call_id", first),
        message.get("name"),
    )


def _bounded(shape: str) -> str:
    size = len(shape.encode())
    if size > FIXED_BYTES_MAX:
        raise ImportSourceError(f"a message has {size} bytes beside its content; {FIXED_BYTES_MAX} fit")
    return shape
