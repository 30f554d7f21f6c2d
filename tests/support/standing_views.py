"""Agents and a processor, some of which hang, for roles in processes of their own."""

from __future__ import annotations

import threading
from dataclasses import replace

from tests.support.sessions import ScriptedModel, asks, says
from tracklog.processors.processor import Processor, Seen
from tracklog.producers.policy_file import PolicyFile
from tracklog.producers.tools import ToolSet, tool
from tracklog.producers.turn import Agent
from tracklog.schemas.values import Usage

HANGS_S = 60.0
USAGE = Usage(input_tokens=100, output_tokens=20)


class Hanging(Processor[int]):
    """Does not come back from the first event that it is shown."""

    name = "hanging"
    version = 1

    def start(self, key: str) -> int:
        return 0

    def apply(self, state: int, seen: Seen) -> int:
        threading.Event().wait(HANGS_S)
        return state + 1


def blocker() -> Agent:
    """Its tool blocks the event loop of its worker."""

    @tool(effect="readonly", timeout_s=HANGS_S)
    async def block(what: str) -> str:
        threading.Event().wait(HANGS_S)
        return what

    return Agent("blocker", ScriptedModel(asks(("c1", "block")), says("done")), ToolSet.of(block))


@tool(effect="readonly", timeout_s=10)
def look(what: str) -> str:
    return f"found {what}"


@tool(effect="opaque", timeout_s=10)
def mail(what: str) -> str:
    """Performed by dispatchers where there are some."""
    return f"sent {what}"


def clerk() -> Agent:
    """Looks something up, mails it, and is done. Its model has a price."""
    answers = asks(("c1", "look")), asks(("c2", "mail")), says("done")
    priced = [replace(one, usage=USAGE, cost_micro_usd=1500, duration_ms=700) for one in answers]
    return Agent("clerk", ScriptedModel(*priced), ToolSet.of(look, mail))


def asker() -> Agent:
    """Waits for a person."""
    model = ScriptedModel(asks(("c1", "mail")), says("done"))
    return Agent("asker", model, ToolSet.of(mail), policy=PolicyFile(b'default = "hold"\n', "held.toml"))
