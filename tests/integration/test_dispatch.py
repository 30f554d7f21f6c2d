"""Calls that dispatchers perform, for sessions on one log: in memory, with real threads and a ledger that counts."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.dispatching import dispatched, dispatching, new_dispatcher
from tests.support.ledger import ledger
from tests.support.sessions import ScriptedModel, World, asks, new_world, says
from tracklog.infra.clock import SystemClock
from tracklog.producers.settle import Timing
from tracklog.schemas import events as ev
from tracklog.schemas.errors import OutcomeAwaited
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
