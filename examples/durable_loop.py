"""A tool loop that survives kill -9: `python examples/durable_loop.py DIRECTORY [--kill]`.

With --kill the process kills itself right after the booking, before anything could say that it was made. Run it
again without: it goes on where it was, and the booking is there once. The model is scripted, so no key is needed.
"""

# ruff: noqa: T201 - it talks to a person
from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

from tracklog.infra.blobs import open_blobs
from tracklog.infra.clock import SystemClock, SystemEntropy
from tracklog.infra.log.open import open_log
from tracklog.infra.settings import Settings
from tracklog.producers.durable import durable
from tracklog.producers.model_recorded import RecordedModel
from tracklog.producers.models import ModelAnswer, calls_of
from tracklog.producers.producer import EventProducer
from tracklog.producers.session import Session
from tracklog.producers.setup import Setup
from tracklog.producers.tools import CallContext, ToolSet, tool
from tracklog.schemas.topics import Topics

KILL = "--kill" in sys.argv


@tool(effect="readonly")
def find_flights(to: str) -> list[str]:
    """Flights to a city."""
    print("  find_flights runs")
    return [f"TL100 to {to}", f"TL200 to {to}"]


@tool(effect="idempotent", key_ttl_s=86_400)
def book(flight: str, context: CallContext) -> str:
    """Books a flight; a key that was seen books nothing."""
    book_of = Path(sys.argv[1]) / "bookings.txt"
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


async def main(directory: Path) -> None:
    log, blobs = open_log(f"sqlite:{directory / 'log.db'}"), open_blobs(str(directory / "blobs"))
    log.create(Settings().topic_specs())
    setup = Setup(agent="traveller", task="Book a flight to Zürich.", blobs=blobs, model=MODEL, tools=TOOLS)
    topics = Topics()
    async with (
        EventProducer(log, topics=topics, clock=SystemClock(), entropy=SystemEntropy()) as producer,
        durable(producer, "trip-1", log=log, topics=topics, setup=setup) as session,
    ):
        print(await loop(session, setup.task))
    log.close()


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
    place = Path(sys.argv[1])
    place.mkdir(parents=True, exist_ok=True)
    asyncio.run(main(place))
