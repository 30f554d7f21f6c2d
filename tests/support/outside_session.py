"""An example's agent that is given its tools as they are, and no session."""

from __future__ import annotations

import importlib

from openai import AsyncOpenAI


async def main(name: str) -> str:
    """What it answers, or its error."""
    example = importlib.import_module(f"examples.{name}.durable")
    try:
        return str(await example.travel(AsyncOpenAI(), (example.find_flights, example.book), "Book a flight."))
    except Exception as error:  # noqa: BLE001 - each framework has errors of its own
        return f"{type(error).__name__}: {error}"
