"""The built-in agent: context, reply, calls side by side, until a reply asks for no call."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tracklog.infra.blobs import BlobStore
from tracklog.producers.assembly import Message
from tracklog.producers.models import Model
from tracklog.producers.policy import AllowAll, Policy
from tracklog.producers.session import Reply, Result, Session
from tracklog.producers.setup import Setup
from tracklog.producers.tools import ToolSet
from tracklog.schemas.errors import InvalidEvent
from tracklog.schemas.values import Ending

__all__ = ["Agent", "Compaction", "Program", "Turn", "run_memory", "run_turns"]

TURNS_MAX: Final = 100

Program = Callable[[Session, str], Awaitable[Any]]
Summarize = Callable[[Sequence[Message]], Awaitable[str]]


@dataclass(frozen=True, slots=True)
class Compaction:
    """When a context has more than `messages_max` messages, those between the task and its last `keep` become one
    summary.

    A reply stays with the results of its calls. The summary is recorded as it was made, and never made again.
    """

    summarize: Summarize
    messages_max: int = 200
    keep: int = 50

    def __post_init__(self) -> None:
        if not 0 < self.keep < self.messages_max:
            raise InvalidEvent(
                f"a compaction that keeps {self.keep} of {self.messages_max} messages", hint="0 < keep < messages_max"
            )


@dataclass(frozen=True, slots=True)
class Agent:
    """An agent by its parts. `turns_max`: a run that has not come to an end by then ends as failed."""

    name: str
    model: Model | None
    tools: ToolSet = field(default_factory=ToolSet.of)
    policy: Policy = field(default_factory=AllowAll)
    prompt: str | None = None
    turns_max: int = TURNS_MAX
    compaction: Compaction | None = None
    program: Program | None = None
    """What is run instead of the built-in turns: a program over a session, given the task. What it returns (JSON) is
    the result, unless it has ended the session itself."""
    talks_until: str | None = None
    """Of an agent that talks with somebody: a reply without calls waits for the next message, and one that holds this
    text is the last. None: a reply without calls is the end."""

    def setup(self, task: str, blobs: BlobStore, **others: Any) -> Setup:
        """What a session of this agent on a task is opened with; `others` are the further fields of Setup."""
        parts = {"model": self.model, "tools": self.tools, "policy": self.policy, "prompt": self.prompt}
        return Setup(agent=self.name, task=task, blobs=blobs, **{**parts, **others})


Turn = Callable[[Session, Any], Awaitable[Any]]
"""One turn of a program: from what the last one left (JSON) to what the next one goes on with."""


async def run_memory(session: Session, turn: Turn, first: Any) -> Any:
    """Runs turns until one has ended the trajectory, and returns what it left.

    Begins with `first`, or with the memory of the last checkpoint when the session was opened with `from_checkpoint`.
    A turn is a function of its memory and of what the session answers, of nothing else.
    """
    memory = session.memory if session.memory is not None else first
    while not session.over:
        memory = await turn(session, memory)
        await session.finish_turn(memory)
    return memory


async def run_turns(session: Session, agent: Agent, task: str) -> str:
    """Works on the task until the model asks for no call any more, and ends the trajectory. Returns the last text.

    A budget of turns, tokens or money that is used up ends it as failed. An agent with a program of its own runs that
    one instead; "" is returned then.
    """
    if agent.program is not None:
        result = await agent.program(session, task)
        if not session.over:
            await session.end(result)
        return ""

    async def turn(session: Session, memory: dict[str, Any]) -> dict[str, Any]:
        messages, turns = memory["messages"], memory["turns"]
        if turns >= agent.turns_max:
            await session.end(ending=Ending.FAILED, reason=f"no end within {agent.turns_max} turns")
            return {**memory, "text": ""}
        if session.used_up:
            await session.end(ending=Ending.FAILED, reason=session.used_up)
            return {**memory, "text": ""}
        messages = prompted(session.prompt if session.prompt is not None else agent.prompt, messages)
        if agent.compaction is not None:
            messages = await compacted(session, agent.compaction, messages)
        await session.build_context(messages)
        reply = await session.call_model()
        messages.append(reply.message)
        if reply.tool_calls:
            messages += [result.message for result in await call_all(session, reply)]
        else:
            answer = None if agent.talks_until is None else await session.receive()
            if answer is None or str(agent.talks_until) in str(answer["content"]):
                await session.end(reply.text)
            else:
                messages.append(answer)
        return {"messages": messages, "turns": turns + 1, "text": reply.text}

    first = {"messages": [{"role": "user", "content": task}], "turns": 0, "text": ""}
    text: str = (await run_memory(session, turn, first))["text"]
    return text


def prompted(prompt: str | None, messages: list[Any]) -> list[Any]:
    """The messages under this prompt, which may be another one than before."""
    said = messages[1:] if messages[0]["role"] == "system" else messages
    return said if prompt is None else [{"role": "system", "content": prompt}, *said]


async def compacted(session: Session, compaction: Compaction, messages: list[Any]) -> list[Any]:
    """The messages, with a summary in the place of the older ones when they have become too many."""
    if len(messages) <= compaction.messages_max:
        return messages
    first = 2 if messages[0]["role"] == "system" else 1
    cut = len(messages) - compaction.keep
    while cut > first and messages[cut]["role"] == "tool":
        cut -= 1
    if cut <= first + 1:
        return messages
    older = messages[first:cut]
    summary = await session.compact(1, session.turn, lambda: compaction.summarize(older))
    return [*messages[:first], summary, *messages[cut:]]


async def call_all(session: Session, reply: Reply) -> list[Result]:
    """Makes the calls of a reply side by side; the results in the order of the calls.

    One that cannot be settled does not cut off the others, whose outcome would then be unknown too.
    """
    made = await asyncio.gather(*(session.call_tool(call) for call in reply.tool_calls), return_exceptions=True)
    return [_result(one) for one in made]


def _result(made: Result | BaseException) -> Result:
    if isinstance(made, BaseException):
        raise made
    return made
