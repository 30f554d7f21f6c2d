"""A tool that is paused: its calls wait, none is lost, none is made twice; who cannot look begins none."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.support.dispatching import dispatched, dispatching, new_dispatcher
from tests.support.ledger import effects_of, ledger
from tests.support.sessions import ScriptedModel, World, asks, new_world, says
from tracklog.consumers.cli.app import app
from tracklog.consumers.dispatch.pauses import KNOWN_S_MAX, PauseBoard, Pauses, say
from tracklog.consumers.open_calls import OpenCalls, open_in_log
from tracklog.infra.clock import ManualClock, SystemClock
from tracklog.producers.settle import Timing
from tracklog.schemas import events as ev
from tracklog.schemas.control import ToolPaused, ToolResumed
from tracklog.schemas.errors import LogUnavailable, OutcomeAwaited
from tracklog.schemas.topics import Topics
from tracklog.schemas.values import ResultStatus

TOPICS = Topics()
CLASSES = ("readonly", "idempotent", "probe", "opaque")
TIMING = Timing(grace_s=70.0, outcome_wait_s=10.0)
LEAVES = Timing(grace_s=70.0, outcome_wait_s=0.0)


@pytest.fixture
def world() -> Any:
    with ledger() as (_, url):
        yield new_world(url)


async def _said(world: World, body: ToolPaused | ToolResumed) -> None:
    await say(world.new_log(), TOPICS, body, by=body.by, clock=world.clock)


async def _queued(world: World, effect: str) -> dict[str, Any]:
    """A session that has left a call of the class to dispatchers; what it is opened with again."""
    model = ScriptedModel(asks(("call-1", effect)), says("done"))
    changes: dict[str, Any] = {"tools": dispatched(world.tools()), "timing": LEAVES, "model": model}
    with pytest.raises(OutcomeAwaited):
        await world.run(**changes)
    return {**changes, "timing": TIMING}


@pytest.mark.parametrize("effect", CLASSES)
async def test_calls_of_a_paused_tool_wait_for_its_resumption_also_across_restarts(world: World, effect: str) -> None:
    # given a call that waits for a dispatcher, and a pause of its tool
    changes = await _queued(world, effect)
    await _said(world, ToolPaused(tool=effect, by="ada", reason="the bank is down"))
    # when one dispatcher after the other looks at it
    for name in ("first", "second"):
        told: list[str] = []
        dispatcher = new_dispatcher(world, world.new_log(), changes["tools"], clock=world.clock, name=name, told=told)
        async with dispatching(dispatcher):
            while not (told and dispatcher.open_calls):  # noqa: ASYNC110 - it announces neither
                await asyncio.sleep(0.01)
        assert told == [f"tool {effect} is paused by ada: its calls wait"]
    # then nothing was done, and nothing is in the ledger; the call is counted as queued
    assert not world.ran
    assert open_in_log(world.new_log(), TOPICS) == {effect: OpenCalls(queued=1)}
    assert all(world.new_log().bounds(TOPICS.attempts, one).end == 0 for one in range(2))
    # and when a third one runs while it is resumed, the call is made once
    async with dispatching(new_dispatcher(world, world.new_log(), changes["tools"], clock=world.clock)):
        running = asyncio.create_task(world.run(**changes))
        await _said(world, ToolResumed(tool=effect, by="bob"))
        await running
    assert world.ran == {"call-1": 1}
    assert [one.status for one in world.bodies(ev.ToolResult)] == [ResultStatus.OK]


async def test_a_paused_call_expires_at_its_deadline_and_is_never_made(world: World) -> None:
    # given a call of a paused tool whose deadline is past
    changes = await _queued(world, "opaque")
    await _said(world, ToolPaused(tool="opaque", by="ada"))
    world.clock.advance(TIMING.dispatch_within_s + 1)
    # when a dispatcher comes, and the tool is resumed later
    async with dispatching(new_dispatcher(world, world.new_log(), changes["tools"], clock=world.clock)):
        await world.run(**changes)
        await _said(world, ToolResumed(tool="opaque", by="bob"))
    # then the model was told that it did not happen, and it does not
    assert [one.status for one in world.bodies(ev.ToolResult)] == [ResultStatus.EXPIRED]
    assert effects_of(world.ledger_url, "call-1") == 0


async def test_a_dispatcher_that_cannot_look_holds_every_tool(world: World) -> None:
    # given one that has looked, on a log that then is away
    clock, told = ManualClock(), list[str]()
    log = world.new_log()
    pauses = Pauses(log, TOPICS, clock, told.append)
    assert pauses.holds("pay")
    await pauses.look()
    assert not pauses.holds("pay")

    def away(topic: str, partition: int) -> Any:
        raise LogUnavailable("nobody answers")

    log.bounds = away  # type: ignore[method-assign]
    # when it looks for longer than it may rely on what it knew
    clock.advance(KNOWN_S_MAX)
    await pauses.look()
    assert not pauses.holds("pay")
    clock.advance(0.001)
    await pauses.look()
    # then every tool is held, and that is said once
    assert pauses.holds("pay")
    await pauses.look()
    assert told == ["no call is begun: which tools are paused cannot be read: nobody answers"]


async def test_the_first_pause_holds_until_a_resumption_and_a_late_copy_of_it_changes_nothing(world: World) -> None:
    # given two people who pause a tool, one who resumes it, and the first record, which comes once more
    log = world.new_log()
    board, by = PauseBoard(log, TOPICS), ("ada", "bob")
    assert board.look() == {}
    for one in by:
        await _said(world, ToolPaused(tool="pay", by=one))
        world.clock.advance(1.0)
    assert board.look()["pay"].by == "ada"
    await _said(world, ToolResumed(tool="pay", by="bob"))
    then = ManualClock(world.clock.now_us() - 2_000_000)
    await say(log, TOPICS, ToolPaused(tool="pay", by="ada"), by="ada", clock=then)
    # then the tool goes on, for whoever reads on and whoever reads anew
    assert board.look() == PauseBoard(log, TOPICS).look() == {}


def test_the_command_line_pauses_lists_and_resumes(tmp_path: Path) -> None:
    # given a log of this machine
    def tracklog(*words: str) -> Any:
        done = CliRunner().invoke(app, ["--log", f"sqlite:{tmp_path / 'log.db'}", *words, "--json"])
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    # when a tool is paused twice, and resumed
    first = tracklog("tools", "pause", "refund", "--as", "ada", "--reason", "the bank is down")
    second = tracklog("tools", "pause", "refund", "--as", "bob")
    (listed,) = tracklog("tools", "list")["paused"]
    resumed = tracklog("tools", "resume", "refund", "--as", "bob")
    # then who paused it first is known, with when and why, until it goes on
    assert (first["changed"], second["changed"], resumed["changed"]) == (True, False, True)
    assert first["paused"] == second["paused"] == listed
    assert (listed["tool"], listed["by"], listed["reason"]) == ("refund", "ada", "the bank is down")
    assert abs(listed["since_us"] - SystemClock().now_us()) < 60_000_000
    assert tracklog("tools", "list") == {"paused": [], "tools": [], "lag": 0}


def test_what_is_not_paused_is_not_resumed_and_what_is_paused_is_named(tmp_path: Path) -> None:
    log = ["--log", f"sqlite:{tmp_path / 'log.db'}", "tools"]
    assert "no tool is paused" in CliRunner().invoke(app, [*log, "resume", "refund", "--as", "ada"]).output
    CliRunner().invoke(app, [*log, "pause", "refund", "--as", "ada"])

    done = CliRunner().invoke(app, [*log, "resume", "refunds", "--as", "ada"])

    assert done.exit_code == 2
    assert "refunds is not paused" in done.output
    assert "paused are refund" in done.output


def test_a_name_that_no_tool_can_have_is_refused(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["--log", f"sqlite:{tmp_path / 'log.db'}", "tools", "pause", "pay now", "--as", "a"])

    assert done.exit_code == 2
    assert "no name of a tool" in done.output
