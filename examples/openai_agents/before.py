"""An agent of the OpenAI Agents SDK."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence

from agents import Agent, OpenAIChatCompletionsModel, Runner, function_tool, set_tracing_disabled
from openai import AsyncOpenAI

from examples import desk

set_tracing_disabled(True)

Tools = Sequence[Callable[..., Awaitable[str]]]


async def find_flights(to: str) -> str:
    """Flights to a city."""
    return await desk.flights(to)


async def book(flight: str) -> str:
    """Books a seat on a flight."""
    return await desk.book(flight)


async def travel(client: AsyncOpenAI, tools: Tools, task: str) -> str:
    model = OpenAIChatCompletionsModel("gpt-5-mini", openai_client=client)
    agent = Agent("traveller", instructions="Be brief.", model=model, tools=[function_tool(one) for one in tools])
    return str((await Runner.run(agent, task)).final_output)


async def main(task: str) -> str:
    return await travel(AsyncOpenAI(), (find_flights, book), task)


if __name__ == "__main__":
    print(asyncio.run(main(sys.argv[1])))
