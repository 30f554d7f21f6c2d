"""Whether what a program asks for is what is recorded: what differs, "" for nothing. Pure."""

from __future__ import annotations

import orjson

from tracklog.schemas import events as ev
from tracklog.schemas.errors import InvalidEvent
from tracklog.schemas.events import EventBody
from tracklog.schemas.values import Body

__all__ = ["context", "end", "json_of", "message", "sent", "start", "timer"]


def json_of(name: str, value: object) -> str:
    try:
        return orjson.dumps(value).decode()
    except TypeError as error:
        raise InvalidEvent(
            f"{name} is not JSON: {error}", hint="return dicts, lists, strings, numbers and the like"
        ) from error


def start(recorded: ev.TaskStarted, asked: ev.TaskStarted) -> str:
    """Whether it is another task. Other versions are drift."""
    pairs = {"task": (recorded.task.hash, asked.task.hash), "agent": (recorded.agent, asked.agent)}
    return ", ".join(name for name, (was, now) in pairs.items() if was != now)


def context(recorded: ev.ContextBuilt, asked: ev.ContextBuilt) -> str:
    return "" if recorded.context_hash == asked.context_hash else "context"


def message(recorded: ev.MessageReceived, asked: ev.MessageReceived) -> str:
    same = (recorded.peer, recorded.role, recorded.message.hash) == (asked.peer, asked.role, asked.message.hash)
    return "" if same else "message"


def sent(recorded: ev.MessageSent, asked: ev.MessageSent) -> str:
    same = (recorded.peer, recorded.message.hash) == (asked.peer, asked.message.hash)
    return "" if same else "message"


def timer(recorded: EventBody, asked: EventBody) -> str:
    return "" if recorded == asked else "timer"


def end(recorded: ev.TaskEnded, asked: ev.TaskEnded) -> str:
    was, now = _digest(recorded.result), _digest(asked.result)
    return "" if (recorded.ending, was) == (asked.ending, now) else "result"


def _digest(body: Body | None) -> bytes | None:
    return None if body is None else body.hash
