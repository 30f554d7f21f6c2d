"""A tool loop written against the session, which survives kill -9: `python examples/durable_loop.py [--kill]`.

With --kill the process kills itself right after the booking, before anything could say that it was made. Run it
again without: it goes on where it was, and the booking is there once. The model is scripted, so no key is needed.
The log is .tracklog/ of the current directory, unless the settings say otherwise.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

from tracklog.producers import CallContext, Session, Setup, ToolSet, durable, tool
from tracklog.producers.model_recorded import RecordedModel
from tracklog.producers.models import ModelAnswer, calls_of

KILL = "--kill" in sys.argv


@tool(effect="readonly")
def find_flights(to: str) -> list[str]:
    """Flights to a city."""
    print("  find_flights runs")
    return [f"TL100 to {to}", f"TL200 to {to}"]


@tool(effect="idempotent", key_ttl_s=86_400)
def book(flight: str, context: CallContext) -> str:
    """Books a flight; a key that was seen books nothing."""
    book_of = Path("bookings.txt")
    lines = book_of.read_text().splitlines() if book_of.exists() else []
    if any(line.startswith(context.idempotency_key) for line in lines):
        print("  book runs again under its key: nothing new is booked")
        return f"booked {flight}"
    print("  book runs: booked")
    with book_of.open("a") as out:
        out.write(f"{context.idempotency_key} {flight}\n")
    if KILL:
        os.kill(os.getpid(), signal.SIGKILL)
    return f"booked {flight}"


def asks(call_id: str, name: str, arguments: str) -> ModelAnswer:
    call = {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    return ModelAnswer(message=message, tool_calls=calls_of(message))


TOOLS = ToolSet.of(find_flights, book)
MODEL = RecordedModel(
    [
        asks("call-1", "find_flights", '{"to": "Zürich"}'),
        asks("call-2", "book", '{"flight": "TL100"}'),
        ModelAnswer(message={"role": "assistant", "content": "TL100 to Zürich is booked."}),
    ]
)


async def main() -> None:
    setup = Setup("traveller", "Book a flight to Zürich.", model=MODEL, tools=TOOLS)
    async with durable("trip-1", setup) as session:
        print(await loop(session, setup.task))


async def loop(session: Session, task: str) -> str:
    """As any tool loop: a list of messages, a model, its calls, their results."""
    messages: list[Any] = [{"role": "user", "content": task}]
    while True:
        await session.build_context(messages)
        reply = await session.call_model()
        messages.append(reply.message)
        if not reply.tool_calls:
            await session.end(reply.text)
            return reply.text
        messages += [(await session.call_tool(call)).message for call in reply.tool_calls]


if __name__ == "__main__":
    asyncio.run(main())
