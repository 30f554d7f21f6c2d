"""A tool loop over the OpenAI SDK."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from openai import AsyncOpenAI

from examples import desk

TEXT = {"type": "string"}

Tools = Sequence[Callable[..., Awaitable[str]]]


async def find_flights(to: str) -> str:
    """Flights to a city."""
    return await desk.flights(to)


async def book(flight: str) -> str:
    """Books a seat on a flight."""
    return await desk.book(flight)


def described(name: str, description: str, **parameters: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": parameters, "required": list(parameters)}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}


TOOLS: Any = [
    described("find_flights", "Flights to a city.", to=TEXT),
    described("book", "Books a seat on a flight.", flight=TEXT),
]


async def travel(client: AsyncOpenAI, tools: Tools, task: str) -> str:
    by_name = {tool.__name__: tool for tool in tools}
    messages: list[Any] = [{"role": "user", "content": task}]
    while True:
        completion = await client.chat.completions.create(model="gpt-5-mini", messages=messages, tools=TOOLS)
        message: Any = completion.choices[0].message
        messages.append(message.model_dump(exclude_none=True))
        if not message.tool_calls:
            return str(message.content)
        for call in message.tool_calls:
            output = await by_name[call.function.name](**json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": output})


async def main(task: str) -> str:
    return await travel(AsyncOpenAI(), (find_flights, book), task)


if __name__ == "__main__":
    print(asyncio.run(main(sys.argv[1])))
