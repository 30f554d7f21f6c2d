"""`tracklog replay trajectory`, as a person types it."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tracklog.consumers.cli.app import app
from tracklog.consumers.wiring import blobs_of, opened_log, producer_of
from tracklog.infra.settings import load_settings
from tracklog.producers.agents import load_agent
from tracklog.producers.opening import opened
from tracklog.producers.setup import Setup
from tracklog.producers.turn import run_turns

Tracklog = Callable[..., Result]

AGENT = """
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
"""


@pytest.fixture
def tracklog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tracklog]:
    """One run of the agent is recorded."""
    (tmp_path / "replayed_agent.py").write_text(AGENT)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    environ = {"TRACKLOG_HOME": str(tmp_path / "data")}
    settings = load_settings(flags={}, environ=environ, cwd=tmp_path)
    agent = load_agent("replayed_agent:agent")

    async def record() -> None:
        blobs = blobs_of(settings)
        setup = Setup("traveller", "a trip", blobs, model=agent.model, tools=agent.tools, prompt=agent.prompt)
        with opened_log(settings, make_topics=True) as log:
            async with producer_of(settings, log) as producer, opened(producer, "trip", log=log, setup=setup) as one:
                await run_turns(one, agent, "a trip")

    asyncio.run(record())
    runner = CliRunner(env=environ)

    def run(trajectory_id: str, agent: str = "", *more: str, exit_code: int = 0) -> Result:
        line = ["replay", "trajectory", trajectory_id, *(["--agent", agent] if agent else []), *more]
        result = runner.invoke(app, line)
        assert result.exit_code == exit_code, f"{line}: {result.output}\n{result.exception!r}"
        return result

    yield run
    del sys.modules["replayed_agent"]


def test_the_agent_that_recorded_a_run_replays_it_clean_and_calls_nothing(tracklog: Tracklog) -> None:
    report = json.loads(tracklog("trip", "replayed_agent:agent", "--json").stdout)
    assert (report["clean"], report["turns"], report["ended"], report["divergence"]) == (True, 2, True, None)
    assert "trip: clean (2 turns" in tracklog("trip", "replayed_agent:agent").stdout
    assert sys.modules["replayed_agent"].MADE == ["train"]


def test_without_an_agent_the_record_says_what_it_was(tracklog: Tracklog) -> None:
    assert "trip: clean (2 turns" in tracklog("trip").stdout
    assert "trip: clean" in tracklog("trip", "replayed_agent:agent", "--again", "model").stdout
    found = json.loads(tracklog("trip", "replayed_agent:moody", "--again", "model", "--json", exit_code=1).stdout)
    assert (found["divergence"]["turn"], found["divergence"]["cause"]) == (2, "model")


@pytest.mark.parametrize(
    ("agent", "turn", "asked"),
    [
        ("clocked", 1, "the clock (time.time) outside the session, at "),
        ("strict", 1, "deny for call 'c1': no bookings"),
        ("brief", 0, "another prompt"),
    ],
)
def test_a_changed_agent_ends_with_1_and_says_where_and_why(
    tracklog: Tracklog, agent: str, turn: int, asked: str
) -> None:
    found = json.loads(tracklog("trip", f"replayed_agent:{agent}", "--json", exit_code=1).stdout)["divergence"]
    assert (found["turn"], found["cause"]) == (turn, "environment" if agent == "clocked" else "harness")
    assert asked in found["asked"]
    text = tracklog("trip", f"replayed_agent:{agent}", exit_code=1).stdout
    assert f"diverges at turn {turn}" in text
    assert asked in text


@pytest.mark.parametrize(
    ("trajectory_id", "agent", "says"),
    [
        ("trip", "replayed_agent:other", "is of agent 'traveller'; given is 'clerk'"),
        ("trip", "replayed_agent:gone", "has no 'gone'"),
        ("trip", "no_such_module:agent", "there is no module 'no_such_module'"),
        ("nowhere", "replayed_agent:agent", "no trajectory 'nowhere'"),
    ],
)
def test_what_cannot_be_replayed_is_refused_with_the_reason(
    tracklog: Tracklog, trajectory_id: str, agent: str, says: str
) -> None:
    assert says in tracklog(trajectory_id, agent, exit_code=2).stderr
