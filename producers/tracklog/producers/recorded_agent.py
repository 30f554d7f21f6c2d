"""The built-in agent, with what a record says of the agent that made it: name, model, prompt, tools, rulings.

It needs no code of the agent's own: what it shows is that the harness of today still does what is recorded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NoReturn

import orjson

from tracklog.infra.blobs import BlobStore
from tracklog.producers.bodies import whole_text
from tracklog.producers.cursor import came, imported
from tracklog.producers.history import started_of
from tracklog.producers.model_recorded import RecordedModel
from tracklog.producers.policy import ALLOW, Decision, Situation
from tracklog.producers.tools import CallContext, Tool, ToolSet
from tracklog.producers.turn import Agent
from tracklog.producers.versions import Versions
from tracklog.schemas import events as ev
from tracklog.schemas.codec import Event
from tracklog.schemas.errors import InputError, InvalidTool, ToolOutsideSession
from tracklog.schemas.values import Body, Budgets, ToolCall

__all__ = ["recorded_agent"]

NEVER: Final = "\0"
"""No message holds it."""


def recorded_agent(events: Sequence[Event], blobs: BlobStore) -> Agent:
    """The agent of these events, those that a fork inherits before them. It can be replayed, and not run.

    Raises InputError for a record without a start, BlobMissing, BlobAltered.
    """
    started, versions = started_of(events), Versions.recorded(events)
    if started is None or versions is None:
        raise InputError("these events have no start", hint="is it the right trajectory?")
    return Agent(
        name=started.agent,
        model=RecordedModel((), name=versions.model) if versions.model else None,
        tools=_tools(events, versions, blobs),
        policy=_Recorded(events, started.budgets),
        prompt=None if versions.prompt is None else blobs.get(versions.prompt.hex()).decode(),
        turns_max=max(1, sum(isinstance(event.body, ev.ContextBuilt) for event in events)),
        talks_until=_last_word(events, blobs),
    )


def _tools(events: Sequence[Event], versions: Versions, blobs: BlobStore) -> ToolSet:
    """As the model was told of them; where that is not recorded, those that it called."""
    if versions.tools is not None:
        told = orjson.loads(blobs.get(versions.tools.hex()))
        return ToolSet.of(*(_tool(**one["function"]) for one in told))
    called = {event.body.tool for event in events if isinstance(event.body, ev.ToolIntent)}
    return ToolSet({name: tool for name in called if (tool := _called(name)) is not None})


def _called(name: str) -> Tool | None:
    """None for a name that no tool can have: the model made it up."""
    try:
        return _tool(name)
    except InvalidTool:
        return None


def _tool(name: str, description: str = "", parameters: Mapping[str, Any] | None = None, **_: object) -> Tool:
    async def call(context: CallContext, arguments: Mapping[str, Any]) -> NoReturn:
        raise ToolOutsideSession(f"tool {name!r} is known from a record only", hint="replay it with --agent")

    schema = {"type": "object"} if parameters is None else parameters
    return Tool(name, description, schema, call, check=lambda arguments: "")


class _Recorded:
    """Rules as is recorded."""

    version = "recorded"

    def __init__(self, events: Sequence[Event], budgets: Budgets) -> None:
        self.budgets = budgets
        self._rulings = {event.body.call_id: event.body for event in events if isinstance(event.body, ev.Authorized)}

    def decide(self, call: ToolCall, tool: Tool, situation: Situation) -> Decision:
        ruled = self._rulings.get(call.call_id)
        return ALLOW if ruled is None else Decision(ruled.ruling, ruled.rule)


def _last_word(events: Sequence[Event], blobs: BlobStore) -> str | None:
    """What ends the conversation of an agent that talks: the last thing that it was told. None for one that does not.

    Where a recording stops is not its agent's doing, so there nothing ends it.
    """
    answers = talks = ended = False
    heard: list[Body] = []
    asked = 0
    for event in events:
        if isinstance(event.body, ev.ModelReplied):
            answers = not event.body.tool_calls
            asked += answers
        elif isinstance(event.body, ev.MessageReceived | ev.ContextBuilt):
            talks = talks or answers
        if isinstance(event.body, ev.MessageReceived) and came(event):
            heard.append(event.body.message)
        ended = ended or (isinstance(event.body, ev.TaskEnded) and not imported(event))
    if not talks and not heard:
        return None
    return whole_text(heard[asked - 1], blobs) if ended and 0 < asked <= len(heard) else NEVER
