"""A harness as somebody writes one, of parts that can be done otherwise, and a run of it."""

from __future__ import annotations

import asyncio
import json
import os
import random
import secrets
import socket
import subprocess
import time
import uuid
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.support.sessions import ScriptedModel, World, new_world, says
from tracklog.producers.models import ModelAnswer, Reply, calls_of
from tracklog.producers.policy import ALLOW, Decision, Situation, deny
from tracklog.producers.session import Result, Session
from tracklog.producers.tools import Tool, ToolSet, tool
from tracklog.schemas.values import Budgets, ToolCall

HERE = Path(__file__).parent
PROMPT = "You book flights."
FILES = ["zurich.md", "bern.md", "oslo.md", "rome.md", "lima.md", "cairo.md", "tokyo.md", "delhi.md"]
SHOWN_CHARS = 40


@tool(effect="readonly")
def find(city: str, limit: int = 3) -> str:
    """Finds flights."""
    return f"{limit} flights to {city}: " + ", ".join(f"TL{number} at {number}:00" for number in range(100, 112))


@tool(effect="readonly")
def rate(currency: str) -> str:
    """The rate of a currency."""
    return "1.084199999"


@tool(effect="opaque")
def book(flight: str) -> str:
    """Books a flight."""
    return f"booked {flight}"


def asked(*calls: tuple[str, str, str]) -> ModelAnswer:
    raw = [{"id": one, "type": "function", "function": {"name": name, "arguments": args}} for one, name, args in calls]
    message = {"role": "assistant", "content": None, "tool_calls": raw}
    return ModelAnswer(message=message, tool_calls=calls_of(message))


def answers() -> list[ModelAnswer]:
    """Turn 1 looks twice side by side, 2 asks for a rate, 3 books, 4 reports, 5 closes."""
    return [
        asked(("c1", "find", '{"city": "Oslo"}'), ("c2", "find", '{"city": "Rome"}')),
        asked(("c3", "rate", '{"currency": "NOK"}')),
        asked(("c4", "book", '{"flight": "TL101"}')),
        says('{"seat": "12A", "price": 1234.5, "gate": "B4"}'),
        says("done"),
    ]


class Harness:
    """Five turns. Every part that is changed somewhere is a method."""

    messages_max = 8
    keep = 4

    async def __call__(self, session: Session) -> None:
        messages = await self.begin(session)
        for turn in range(1, self.turns() + 1):
            messages = await self.compacted(session, messages)
            await self.before(session, turn)
            await session.build_context(self.shown(messages, turn))
            reply = await session.call_model()
            messages.append(reply.message)
            made = await self.made(session, reply, turn)
            messages += self.told([one.message for one in made], turn)
            if turn == 3:
                messages.append({"role": self.role(), "content": f"charged {self.price(made[0].output)}"})
            if turn == 4:
                messages.append({"role": "user", "content": f"confirm {self.parsed(reply.text)}"})
        await self.finish(session)

    async def begin(self, session: Session) -> list[Any]:
        names = await session.step("files", lambda: FILES)
        began_us = await session.now_us()
        when = self.when(began_us)
        notes = [{"role": "user", "content": f"notes: {', '.join(self.ordered(names))}; began {when}"}]
        return [{"role": "system", "content": session.prompt}, *notes]

    def turns(self) -> int:
        return 5

    def ordered(self, names: Sequence[str]) -> Sequence[str]:
        return sorted(names)

    def when(self, time_us: int) -> str:
        return datetime.fromtimestamp(time_us / 1e6, UTC).isoformat()

    async def before(self, session: Session, turn: int) -> None:
        if turn == 2:
            await session.step("weather", lambda: "fair")
            await session.step("wind", lambda: 3)

    def shown(self, messages: list[Any], turn: int) -> list[Any]:
        return messages

    async def made(self, session: Session, reply: Reply, turn: int) -> list[Result]:
        return list(await asyncio.gather(*(self.call(session, call, turn) for call in reply.tool_calls)))

    async def call(self, session: Session, call: ToolCall, turn: int) -> Result:
        return await session.call_tool(call)

    def told(self, results: list[Any], turn: int) -> list[Any]:
        return [{**one, "content": self.cut(one["content"])} for one in results]

    def cut(self, text: str) -> str:
        return text[:SHOWN_CHARS]

    def role(self) -> str:
        return "user"

    def price(self, output: str) -> str:
        return f"{1234.5:.2f} for {output}"

    def parsed(self, text: str) -> str:
        return str(json.loads(text)["seat"])

    async def compacted(self, session: Session, messages: list[Any]) -> list[Any]:
        if len(messages) <= self.messages_max:
            return messages

        async def summarize() -> str:
            return "flights were looked for"

        summary = await session.compact(1, session.turn, summarize)
        return [*messages[:2], summary, *messages[-self.keep :]]

    async def finish(self, session: Session) -> None:
        await session.end("well")


class Reads(Harness):
    """Reads something beside its session in turn 3, and goes on as ever."""

    def __init__(self, reading: Callable[[], object]) -> None:
        self.reading = reading

    async def made(self, session: Session, reply: Reply, turn: int) -> list[Result]:
        if turn == 3:
            self.reading()
        return await super().made(session, reply, turn)


READINGS: dict[str, tuple[Callable[[], object], str]] = {
    "clock": (lambda: time.time(), "the clock (time.time)"),
    "stopwatch": (lambda: time.perf_counter(), "the clock (time.perf_counter)"),
    "today": (lambda: datetime.now(UTC), "the clock (datetime.now)"),
    "unsorted listing": (lambda: os.listdir(HERE), "a directory listing (os.listdir)"),
    "glob": (lambda: list(HERE.glob("*.py")), "a directory listing (pathlib"),
    "environment": (lambda: os.environ.get("HOME"), "the environment (os.environ)"),
    "uuid": (lambda: uuid.uuid4(), "a random id (uuid.uuid4)"),
    "random": (lambda: random.shuffle([1, 2]), "randomness (random.shuffle)"),
    "secret": (lambda: secrets.token_hex(4), "randomness (secrets.token_hex)"),
    "network": (lambda: socket.create_connection(("127.0.0.1", 9), 0.1), "the network (socket."),
    "process": (lambda: subprocess.run(["true"], check=True), "a process (subprocess.Popen)"),
}


UNLIMITED = Budgets()


class Policy:
    """Denies tools by name; `budgets` are limits."""

    def __init__(self, *denied: str, budgets: Budgets = UNLIMITED) -> None:
        self.version = "changed"
        self.budgets = budgets
        self._denied = denied

    def decide(self, call: ToolCall, tool: Tool, situation: Situation) -> Decision:
        return deny(f"no {tool.name}") if tool.name in self._denied else ALLOW


TOOLS = ToolSet.of(find, rate, book)


async def recorded_run() -> World:
    """A run of the unchanged harness."""
    world = new_world("")
    await world.run(ScriptedModel(*answers()), Harness(), tools=TOOLS, prompt=PROMPT)
    return world
