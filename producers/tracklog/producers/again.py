"""What is around an agent, asked once more while it is replayed: its model at each context, its readings at each step.

A model that answers the same context with something else, and a step that comes out otherwise, are divergences of
which the agent's code is innocent. Tools are never called again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from enum import StrEnum
from typing import Any

import orjson

from tracklog.producers.cursor import Cursor, Recorded, describe, in_short
from tracklog.producers.divergence import Cause, Divergence
from tracklog.producers.models import ModelAnswer
from tracklog.producers.outside import let_through
from tracklog.schemas import events as ev
from tracklog.schemas.values import ToolCall

__all__ = ["Again", "Asking"]


class Again(StrEnum):
    """What a replay can ask again."""

    MODEL = "model"
    STEPS = "steps"


class Asking:
    """Of one replay."""

    def __init__(self, cursor: Cursor, what: Iterable[Again]) -> None:
        self._cursor = cursor
        self._what = frozenset(what)

    @property
    def of_model(self) -> bool:
        """Whether the model is asked: then it may be another one than the record names."""
        return Again.MODEL in self._what

    async def model(
        self, found: Recorded[ev.ModelReplied], message: Mapping[str, Any], ask: Callable[[], Awaitable[ModelAnswer]]
    ) -> None:
        """Raises Diverged when the model says something else now than in `message`, and what asking it raises."""
        if not self.of_model:
            return
        with let_through():
            answer = await ask()
        if _said(message, found.body.tool_calls) != _said(answer.message, answer.tool_calls):
            asked = f"a model call, answered with {in_short(orjson.dumps(answer.message).decode())}"
            raise self._broken(found, describe(found.body), asked, Cause.MODEL)

    async def step(self, found: Recorded[ev.Observed], value: str, run: Callable[[], Awaitable[str]]) -> None:
        """Raises Diverged when the step does not give this value now, and what running it raises."""
        if Again.STEPS not in self._what:
            return
        with let_through():
            again = await run()
        if again != value:
            what = describe(found.body)
            recorded, asked = (f"{what}, which gave {in_short(one)}" for one in (value, again))
            raise self._broken(found, recorded, asked, Cause.ENVIRONMENT)

    def _broken(self, found: Recorded[Any], recorded: str, asked: str, cause: Cause) -> Exception:
        return self._cursor.broken(Divergence(found.turn, found.seq, recorded, asked, cause))


def _said(message: Mapping[str, Any], calls: Iterable[ToolCall]) -> tuple[Any, ...]:
    """What counts of a reply: its content and its calls, whatever their ids are."""
    return (message.get("content") or None, tuple((call.tool, _arguments(call.arguments)) for call in calls))


def _arguments(text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return text
