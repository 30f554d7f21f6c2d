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
from tracklog.producers import CallContext, Setup, ToolSet, durable, tool

Tools = Sequence[Callable[..., Awaitable[str]]]


@tool(effect="readonly")
async def find_flights(to: str) -> str:
    """Flights to a city."""
    return await desk.flights(to)


@tool(effect="idempotent", key_ttl_s=86_400)
async def book(flight: str, context: CallContext) -> str:
    """Books a seat on a flight."""
    return await desk.book(flight, context.idempotency_key)


async def travel(client: AsyncOpenAI, tools: Tools, task: str) -> str:
    model = OpenAIChatModel("gpt-5-mini", provider=OpenAIProvider(openai_client=client))
    agent = Agent(model, instructions="Be brief.", tools=list(tools))
    return str((await agent.run(task)).output)


async def main(task: str) -> str:
    async with durable("trip-1", Setup("traveller", task, tools=ToolSet.of(find_flights, book))) as session:
        answer = await travel(session.wrap(AsyncOpenAI()), (session.bind(find_flights), session.bind(book)), task)
        await session.end(answer)
        return answer


if __name__ == "__main__":
    print(asyncio.run(main(sys.argv[1])))
