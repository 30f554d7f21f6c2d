"""An agent of pydantic-ai."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence

from openai import AsyncOpenAI
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from examples import desk

Tools = Sequence[Callable[..., Awaitable[str]]]


async def find_flights(to: str) -> str:
    """Flights to a city."""
    return await desk.flights(to)


async def book(flight: str) -> str:
    """Books a seat on a flight."""
    return await desk.book(flight)


async def travel(client: AsyncOpenAI, tools: Tools, task: str) -> str:
    model = OpenAIChatModel("gpt-5-mini", provider=OpenAIProvider(openai_client=client))
    agent = Agent(model, instructions="Be brief.", tools=list(tools))
    return str((await agent.run(task)).output)


async def main(task: str) -> str:
    return await travel(AsyncOpenAI(), (find_flights, book), task)


if __name__ == "__main__":
    print(asyncio.run(main(sys.argv[1])))
