"""An agent in a module of its own, with changed ones beside it, and runs of it recorded into a file of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from tracklog.consumers.wiring import blobs_of, opened_log, producer_of
from tracklog.infra.settings import Settings, load_settings
from tracklog.producers.agents import load_agent
from tracklog.producers.opening import opened
from tracklog.producers.policy import AllowAll
from tracklog.producers.turn import run_turns

MODULE = "replayed_agent"
AGENT = """
import os
import time
from tracklog.producers.models import ModelAnswer, calls_of
from tracklog.producers.policy import ALLOW, deny
from tracklog.schemas.values import Budgets
from tracklog.producers.tools import ToolSet, tool
from tracklog.producers.turn import Agent

MADE = []


@tool
def book(what: str) -> str:
    MADE.append(what)
    return f"booked {what}"


class Model:
    name = "small"

    async def reply(self, request, *, on_token=None):
        if request.replies_before == 0:
            function = {"name": "book", "arguments": '{"what":"train"}'}
            message = {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "function": function}]}
        else:
            message = {"role": "assistant", "content": "done"}
        return ModelAnswer(message=message, tool_calls=calls_of(message))


class Clocked:
    version = "allow-all"
    budgets = Budgets()

    def decide(self, call, tool, situation):
        return ALLOW if time.time() > 0 else deny("too early")


class Strict:
    version = "strict"
    budgets = Budgets()

    def decide(self, call, tool, situation):
        return deny("no bookings")


class Moody(Model):
    async def reply(self, request, *, on_token=None):
        first = await super().reply(request)
        return first if first.tool_calls else ModelAnswer(message={"role": "assistant", "content": "no"})


tools = ToolSet.of(book)
moody = Agent("traveller", Moody(), tools, prompt="be kind")
agent = Agent("traveller", Model(), tools, prompt="be kind")
clocked = Agent("traveller", Model(), tools, policy=Clocked(), prompt="be kind")
strict = Agent("traveller", Model(), tools, policy=Strict(), prompt="be kind")
brief = Agent("traveller", Model(), tools, prompt="be brief")
other = Agent("clerk", Model(), tools)


class Exits(Clocked):
    def decide(self, call, tool, situation):
        os._exit(7)


class Hangs(Clocked):
    def decide(self, call, tool, situation):
        while True:
            pass


class Fails(Clocked):
    def decide(self, call, tool, situation):
        print("about to fail")
        raise LookupError("no rule")


exits = Agent("exits", Model(), tools, policy=Exits())
hangs = Agent("hangs", Model(), tools, policy=Hangs())
fails = Agent("fails", Model(), tools, policy=Fails())
"""


def record(home: Path, runs: Mapping[str, str]) -> Settings:
    """Records runs: id -> agent, by its name in the module, and as which agent it is allowed everything."""
    settings = load_settings(flags={"home": str(home)}, environ={}, cwd=home)

    async def one(trajectory_id: str, name: str) -> None:
        agent = replace(load_agent(f"{MODULE}:{name}"), policy=AllowAll())
        setup = agent.setup("a trip", blobs_of(settings))
        with opened_log(settings, make_topics=True) as log:
            async with (
                producer_of(settings, log) as producer,
                opened(producer, trajectory_id, log=log, setup=setup) as session,
            ):
                await run_turns(session, agent, "a trip")

    for trajectory_id, name in runs.items():
        asyncio.run(one(trajectory_id, name))
    return settings
