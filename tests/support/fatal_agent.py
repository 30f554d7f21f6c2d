"""An agent and its tool that need nothing, for processes that are to do no work."""

from __future__ import annotations

from tracklog.producers.tools import tool
from tracklog.producers.turn import Agent

__all__ = ["idle"]


@tool(effect="readonly")
def look() -> str:
    return "nothing"


async def program(session: object, task: str) -> str:
    return task


idle = Agent("idle", None, program=program)
