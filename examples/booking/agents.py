"""A whole agent for workers and dispatchers; docs/first-agent.md walks through it.

    tracklog worker examples.booking.agents:traveller
    tracklog dispatch examples.booking.agents

Looking for flights changes nothing, so the worker does it. Booking one cannot be undone, and the airline knows no key
by which it would notice a second time: it is left to a dispatcher, and only after somebody has approved it. The model
is scripted so that no account is needed; `OpenAIModel(AsyncOpenAI(), "...")` goes in its place.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tracklog.producers import Agent, ToolSet, tool
from tracklog.producers.models import ModelAnswer, ModelRequest, calls_of
from tracklog.producers.policy_file import load_policy

BOOKINGS = Path("bookings.txt")
"""Stands for the airline."""
BOOKING_S = 3.0
"""How long the airline takes to answer after it has booked."""


@tool(effect="readonly", run="inline")
def find_flights(to: str) -> list[str]:
    """Flights to a city."""
    return [f"TL100 to {to}", f"TL200 to {to}"]


@tool(effect="opaque", run="dispatch", timeout_s=4)
def book(flight: str) -> str:
    """Books a seat on a flight."""
    with BOOKINGS.open("a") as bookings:
        bookings.write(f"{flight}\n")
    time.sleep(BOOKING_S)
    return f"a seat on {flight} is booked"


class Script:
    """A model that looks for flights, books the first and says so. A resumed run tells it how many replies it gave."""

    name = "scripted"

    async def reply(self, request: ModelRequest, *, on_token: Callable[[str], None] | None = None) -> ModelAnswer:
        number = request.replies_before or 0
        if number == 0:
            return asks("call-1", "find_flights", to=request.messages[0]["content"])
        if number == 1:
            return asks("call-2", "book", flight="TL100")
        return ModelAnswer(message={"role": "assistant", "content": str(request.messages[-1]["content"])})


def asks(call_id: str, name: str, **arguments: Any) -> ModelAnswer:
    call = {"id": call_id, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    return ModelAnswer(message=message, tool_calls=calls_of(message), stop_reason="tool_calls")


POLICY = load_policy(Path(__file__).with_name("policy.toml"))
traveller = Agent("traveller", Script(), ToolSet.of(find_flights, book), policy=POLICY)
