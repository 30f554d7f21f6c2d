"""Calls that dispatchers perform, for sessions on one log: in memory, with real threads and a ledger that counts."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.support.dispatching import Dying, dispatched, dispatching, new_dispatcher
from tests.support.ledger import effects_of, ledger
from tests.support.sessions import ScriptedModel, World, asks, new_world, says
from tracklog.consumers.dispatch.attempt import OpenCall, Report
from tracklog.consumers.dispatch.dispatcher import Dispatcher
from tracklog.infra.clock import SystemClock
from tracklog.infra.log.ranges import read_range
from tracklog.producers.settle import Timing
from tracklog.schemas import events as ev
from tracklog.schemas.codec import decode_ledger
from tracklog.schemas.errors import OutcomeAwaited, PersonNeeded
from tracklog.schemas.topics import Topics
from tracklog.schemas.values import Place, ResultStatus, Settled

TIMING = Timing(start_within_s=30.0, grace_s=70.0, outcome_wait_s=10.0)


@pytest.fixture
def world() -> Any:
    with ledger() as (_, url):
        world = new_world(url)
        world.log_clock = SystemClock()
        yield world


def _dispatching(world: World) -> dict[str, Any]:
    return {"tools": dispatched(world.tools()), "clock": SystemClock(), "timing": TIMING}


async def test_each_class_is_performed_by_the_dispatcher_and_its_result_comes_by_the_inbox(world: World) -> None:
    # given an agent that asks for one call of each class side by side
    classes = ("readonly", "idempotent", "probe", "opaque")
    model = ScriptedModel(asks(*((f"call-{one}", one) for one in classes)), says("done"))
    # when a dispatcher runs beside it
    async with dispatching(new_dispatcher(world, world.new_log(), dispatched(world.tools()))):
        await world.run(model, **_dispatching(world))
    # then every call was intended for a dispatcher, made once, and its result taken from the inbox
    assert {one.place for one in world.bodies(ev.ToolIntent)} == {Place.DISPATCH}
    results = world.bodies(ev.ToolResult)
    assert {(one.status, one.settled) for one in results} == {(ResultStatus.OK, Settled.DIRECT)}
    taken = [event.envelope.inbox_id for event in world.events() if event.name == "ToolResult"]
    assert len(taken) == len(classes)
    assert None not in taken
    assert world.ran == {f"call-{one}": 1 for one in classes}


async def test_without_a_dispatcher_the_session_leaves_and_goes_on_later(world: World) -> None:
    # given nobody who dispatches
    model = ScriptedModel(asks(("call-1", "idempotent")), says("done"))
    changes = _dispatching(world)
    changes["timing"] = Timing(outcome_wait_s=0.0)
    # when the agent runs
    with pytest.raises(OutcomeAwaited):
        await world.run(model, **changes)
    # then nothing was done, and it goes on once a dispatcher has done it
    assert not world.ran
    async with dispatching(new_dispatcher(world, world.new_log(), dispatched(world.tools()))):
        await world.run(model, **_dispatching(world))
    assert world.ran == {"call-1": 1}
    assert model.asked == {0: 1, 1: 1}


PAST_GRACE_S = 600.0
CLASSES = ("readonly", "idempotent", "probe", "opaque")
DEATHS = ("first append", "second append", "third append", "before the effect", "after the effect")


@pytest.mark.parametrize("effect", CLASSES)
@pytest.mark.parametrize("death", DEATHS)
async def test_a_dispatcher_that_dies_anywhere_leaves_a_call_that_the_next_one_settles(
    world: World, effect: str, death: str
) -> None:
    # given a dispatcher that is gone at one of its appends, or beside the effect
    world.log_clock = world.clock
    tools, model = dispatched(world.tools()), ScriptedModel(asks(("call-1", effect)), says("done"))
    changes: dict[str, Any] = {"tools": tools, "timing": TIMING}
    dying = Dying(world, death)
    log = world.new_log()
    log.faults = dying
    agent = asyncio.create_task(world.run(model, **changes))
    async with dispatching(new_dispatcher(world, log, tools, clock=world.clock)):
        await asyncio.wait({agent, asyncio.create_task(dying.died.wait())}, return_when=asyncio.FIRST_COMPLETED)
    agent.cancel()
    await asyncio.gather(agent, return_exceptions=True)
    # when its effect has landed or never will, and another one takes the call up
    world.dead, world.die_at_point = False, None
    world.clock.advance(PAST_GRACE_S)
    escalated = False
    async with dispatching(new_dispatcher(world, world.new_log(), tools, clock=world.clock, name="next")):
        try:
            await world.run(model, **changes)
        except PersonNeeded:
            escalated = True
    # then no effect happened twice, and the call has a result, or a person was asked about it
    made = effects_of(world.ledger_url, "call-1")
    assert made <= 1
    if escalated:
        assert effect == "opaque"
        assert not world.bodies(ev.ToolResult)
        return
    (result,) = world.bodies(ev.ToolResult)
    if effect != "readonly":
        assert made == (1 if result.status is ResultStatus.OK else 0)
    if effect in ("readonly", "idempotent"):
        assert result.status is ResultStatus.OK


async def test_a_result_that_is_taken_at_once_leaves_no_attempt_without_its_end(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a trajectory that has taken an outcome before its dispatcher goes on
    post = Dispatcher.report

    async def taken_at_once(self: Dispatcher, call: OpenCall, report: Report) -> None:
        await post(self, call, report)
        while call.open:
            call.changed.clear()
            await call.changed.wait()

    monkeypatch.setattr(Dispatcher, "report", taken_at_once)
    told: list[str] = []
    # when it makes a call
    model = ScriptedModel(asks(("call-1", "opaque")), says("done"))
    log = world.new_log()
    async with dispatching(new_dispatcher(world, log, dispatched(world.tools()), told=told)):
        await world.run(model, **_dispatching(world))
    # then the ledger has the end of the attempt, and nobody is told of trouble
    topic = Topics().attempts
    records = [one for p in range(2) for one in read_range(log, topic, p, 0, log.bounds(topic, p).end)]
    assert [decode_ledger(one.key, one.value, one.headers).name for one in records] == ["Attempt", "Done"]
    assert told == []
