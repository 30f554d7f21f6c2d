"""What must be so right before a call is made: the tool's `precondition`, asked each time anew (DESIGN §8, §9).

It is asked after everything that may have taken days (an approval, a pause, a queue), and nothing is sent unless it
says yes: an error or a time-out is no yes. It is asked again a few times then, and the call is refused at last.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from tracklog.producers.tool_run import run_precondition
from tracklog.producers.tools import CallContext, Tool

__all__ = ["ASK_S_MAX", "TRIES_MAX", "unmet"]

TRIES_MAX: Final = 3
ASK_S_MAX: Final = 8.0
"""How long one answer may take; less, where the tool's own time-out is less."""
AGAIN_S: Final = 1.0
"""Before it is asked again; doubled each time. All tries fit into the 30 s in which a call is to be started."""
assert TRIES_MAX * ASK_S_MAX + AGAIN_S * (2 ** (TRIES_MAX - 1) - 1) < 30.0


async def unmet(
    tool: Tool, context: CallContext, arguments: str, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
) -> str:
    """In words why the call is not to be made now; "" when it may be, also for a tool without a precondition."""
    if tool.precondition is None:
        return ""
    asked = ""
    for number in range(TRIES_MAX):
        if number:
            await sleep(AGAIN_S * 2 ** (number - 1))
        holds, asked = await run_precondition(tool, context, arguments, timeout_s=min(ASK_S_MAX, tool.timeout_s))
        if holds is not None:
            return "" if holds else f"its precondition does not hold{f': {asked}' if asked else ''}"
    return f"its precondition could not be checked: {asked}"
