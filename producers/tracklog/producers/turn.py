"""The built-in agent: context, reply, calls side by side, until a reply asks for no call."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, Final

from tracklog.producers.models import Model
from tracklog.producers.policy import AllowAll, Policy
from tracklog.producers.session import Reply, Result, Session
from tracklog.producers.tools import ToolSet
from tracklog.schemas.values import Ending

__all__ = ["Agent", "run_turns"]

TURNS_MAX: Final = 100


@dataclass(frozen=True, slots=True)
class Agent:
    """An agent by its parts. `turns_max`: a run that has not come to an end by then ends as failed."""

    name: str
    model: Model | None
    tools: ToolSet = field(default_factory=ToolSet.of)
    policy: Policy = field(default_factory=AllowAll)
    prompt: str | None = None
    turns_max: int = TURNS_MAX


async def run_turns(session: Session, agent: Agent, task: str) -> str:
    """Works on the task until the model asks for no call any more, and ends the trajectory. Returns the last text."""
    messages: list[Any] = [{"role": "user", "content": task}]
    for _ in range(agent.turns_max):
        prompt = session.prompt if session.prompt is not None else agent.prompt
        system = [] if prompt is None else [{"role": "system", "content": prompt}]
        await session.build_context([*system, *messages])
        reply = await session.call_model()
        messages.append(reply.message)
        if not reply.tool_calls:
            await session.end(reply.text)
            return reply.text
        messages += [result.message for result in await call_all(session, reply)]
    await session.end(ending=Ending.FAILED, reason=f"no end within {agent.turns_max} turns")
    return ""


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
