"""Agents, a tool and a processor that do what a file tells them to, so that a condition can be made and undone.

The folder is named by the environment variable ALERTS_SWITCHES. A switch is on while its file is there.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

from tests.support.sessions import ScriptedModel, asks, says
from tracklog.infra.stack.process import wait_until
from tracklog.processors.processor import Processor, Seen
from tracklog.producers.models import ModelAnswer, ModelRequest
from tracklog.producers.policy_file import PolicyFile
from tracklog.producers.tools import ToolSet, tool
from tracklog.producers.turn import Agent

SWITCHES = "ALERTS_SWITCHES"
HELD_S = 300.0
CIRCLES = 4


def switch(name: str) -> Path:
    return Path(os.environ[SWITCHES]) / name


def held(name: str) -> None:
    """Returns when the switch is off."""
    if not wait_until(lambda: not switch(name).exists(), HELD_S):
        raise TimeoutError(f"{name} was on for {HELD_S:g} s")


class Switched(Processor[int]):
    """Counts events. Stands still while `hold` is on, and fails while `fail` is."""

    name = "switched"
    version = 1

    def start(self, key: str) -> int:
        return 0

    def apply(self, state: int, seen: Seen) -> int:
        held("hold")
        if switch("fail").exists():
            raise ValueError("told to fail")
        return state + 1


class SlowModel(ScriptedModel):
    """Does not give its last answer while the switch is on."""

    def __init__(self, name: str, *answers: ModelAnswer) -> None:
        super().__init__(*answers)
        self._switch = name

    async def reply(self, request: ModelRequest, *, on_token: Callable[[str], None] | None = None) -> ModelAnswer:
        if request.replies_before == len(self.answers) - 1:
            await asyncio.to_thread(held, self._switch)
        return await super().reply(request, on_token=on_token)


@tool(effect="readonly", timeout_s=10)
def look(what: str) -> str:
    return f"found {what}"


@tool(effect="opaque", timeout_s=2)
def mail(what: str) -> str:
    """Performed by a dispatcher, which can be killed in it while `mail` is on."""
    switch("mailing").touch()
    held("mail")
    return f"sent {what}"


def clerk() -> Agent:
    return Agent("clerk", ScriptedModel(asks(("c1", "look")), says("done")), ToolSet.of(look))


def sender() -> Agent:
    return Agent("sender", ScriptedModel(asks(("c1", "mail")), says("done")), ToolSet.of(mail))


def thinker() -> Agent:
    """Its model hangs."""
    return Agent("thinker", SlowModel("think", asks(("c1", "look")), says("done")), ToolSet.of(look))


def circler() -> Agent:
    """Proposes the same again and again."""
    again = [asks((f"c{number}", "look")) for number in range(CIRCLES)]
    return Agent("circler", SlowModel("circle", *again, says("done")), ToolSet.of(look))


def asker() -> Agent:
    """Waits for a person."""
    model = ScriptedModel(asks(("c1", "mail")), says("done"))
    return Agent("asker", model, ToolSet.of(mail), policy=PolicyFile(b'default = "hold"\n', "held.toml"))


HURRIED = b"""
default = "allow"

[[rules]]
name = "hurried"
when = "true"
then = "hold"
may_approve = ["ada"]
expires_in_s = 45
"""


def hurrier() -> Agent:
    """Waits for a person, for a moment."""
    model = ScriptedModel(asks(("c1", "mail")), says("done"))
    return Agent("hurrier", model, ToolSet.of(mail), policy=PolicyFile(HURRIED, "hurried.toml"))
