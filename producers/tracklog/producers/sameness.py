"""Whether a program asks for what it asked for: recorded events compared with those it would write now. Pure.

Each gives what is not as it was, "" for nothing.
"""

from __future__ import annotations

from tracklog.schemas import events as ev
from tracklog.schemas.values import Body

__all__ = ["same_context", "same_end", "same_message", "same_sent", "same_start", "same_timer"]


def same_start(recorded: ev.TaskStarted, asked: ev.TaskStarted) -> str:
    """Whether it is another task. Other versions are drift."""
    pairs = {"task": (recorded.task.hash, asked.task.hash), "agent": (recorded.agent, asked.agent)}
    return ", ".join(name for name, (was, now) in pairs.items() if was != now)


def same_context(recorded: ev.ContextBuilt, asked: ev.ContextBuilt) -> str:
    return "" if recorded.context_hash == asked.context_hash else "context"


def same_message(recorded: ev.MessageReceived, asked: ev.MessageReceived) -> str:
    same = (recorded.peer, recorded.role, recorded.message.hash) == (asked.peer, asked.role, asked.message.hash)
    return "" if same else "message"


def same_sent(recorded: ev.MessageSent, asked: ev.MessageSent) -> str:
    same = (recorded.peer, recorded.message.hash) == (asked.peer, asked.message.hash)
    return "" if same else "message"


def same_timer(recorded: ev.EventBody, asked: ev.EventBody) -> str:
    return "" if recorded == asked else "timer"


def same_end(recorded: ev.TaskEnded, asked: ev.TaskEnded) -> str:
    was, now = _digest(recorded.result), _digest(asked.result)
    return "" if (recorded.ending, was) == (asked.ending, now) else "result"


def _digest(body: Body | None) -> bytes | None:
    return None if body is None else body.hash
