"""A call that may have happened is done again when a person says so: once more for each word, wherever it is killed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from tests.support.dispatching import dispatching, new_dispatcher
from tests.support.ledger import effects_of, ledger
from tests.support.sessions import PAST_GRACE_S, TRAJECTORY, ScriptedModel, World, asks, built_in, new_world, says
from tracklog.producers.answers import Answers
from tracklog.producers.replay import replay
from tracklog.producers.settle import Timing
from tracklog.producers.tools import ToolSet, tool
from tracklog.producers.versions import Drift
from tracklog.schemas import events as ev
from tracklog.schemas.errors import InvalidEvent, PersonNeeded, ToolOutcomeUnknown
from tracklog.schemas.fold import fold_all
from tracklog.schemas.state import State
from tracklog.schemas.values import ResultStatus, Settled


@pytest.fixture
def service() -> Iterator[str]:
    with ledger() as (_, url):
        yield url


def model() -> ScriptedModel:
    return ScriptedModel(asks(("c1", "opaque")), says("done"))


async def in_doubt(url: str) -> World:
    """Killed after the effect, which is there once; a person was asked."""
    world = new_world(url)
    world.die_at_point = "after the effect"
    assert await world.crash(model())
    world.die_at_point = None
    world.clock.advance(PAST_GRACE_S)
    with pytest.raises(PersonNeeded, match="may have happened"):
        await world.run(model())
    return world


@asynccontextmanager
async def answers(world: World) -> AsyncIterator[Answers]:
    log = world.new_log()
    yield Answers(log, clock=world.clock)
    log.close()


async def retry(world: World, person: str = "ada") -> None:
    async with answers(world) as people:
        await people.retry(TRAJECTORY, "c1", person=person, reason="it must be there")


async def sound(world: World, tools: ToolSet | None = None) -> bool:
    setup = world.setup(model()) if tools is None else world.setup(model(), tools=tools)
    state = fold_all(State(TRAJECTORY), world.events())
    return state.irregular == 0 and (await replay(world.events(), built_in(setup), setup=setup)).clean


async def test_it_is_done_once_more_and_who_said_so_is_recorded_with_why(service: str) -> None:
    world, before = await in_doubt(service), effects_of(service, "c1")

    await retry(world)
    await retry(world, "bob")  # the second word comes too late
    await world.run(model())

    first, second = [event for event in world.events() if event.name == "ToolIntent"]
    assert isinstance(first.body, ev.ToolIntent)
    assert isinstance(second.body, ev.ToolIntent)
    assert second.body.idempotency_key == first.body.idempotency_key
    assert (second.envelope.ext["by"], second.envelope.ext["reason"]) == ("ada", "it must be there")
    assert effects_of(service, "c1") == before + 1 == 2
    (result,) = world.bodies(ev.ToolResult)
    assert (result.status, result.settled) == (ResultStatus.OK, Settled.DIRECT)
    assert len(world.bodies(ev.InboxRefused)) == 1
    assert await sound(world)


async def test_killed_anywhere_it_is_never_done_twice_for_one_word(service: str) -> None:
    for cut in (*range(12), "before the effect", "after the effect"):
        world = await in_doubt(service)
        before = effects_of(service, "c1")
        await retry(world)
        world.die_at_append = cut if isinstance(cut, int) else None
        world.die_at_point = cut if isinstance(cut, str) else None
        died = await world.crash(model())
        world.die_at_append = world.die_at_point = None
        world.clock.advance(PAST_GRACE_S)
        try:
            await world.run(model())
        except PersonNeeded:  # it died between the second intent and the result
            async with answers(world) as people:
                await people.settle(TRAJECTORY, "c1", person="ada", happened=True, output="it is")
            await world.run(model())
        assert effects_of(service, "c1") - before <= 1, cut
        assert (len(world.bodies(ev.ToolIntent)), len(world.bodies(ev.ToolResult))) == (2, 1), cut
        assert await sound(world), cut
        if not died:
            break


async def test_nothing_is_done_again_that_nobody_was_asked_about_or_whose_tool_is_another_one(service: str) -> None:
    world = await in_doubt(service)

    @tool(effect="opaque")
    def opaque(what: str, more: int = 0) -> str:
        raise AssertionError

    await retry(world)
    with pytest.raises(PersonNeeded):
        await world.run(model(), tools=ToolSet.of(opaque), drift=Drift.CROSS)
    (refused,) = world.bodies(ev.InboxRefused)
    assert "tool opaque is not as it was" in refused.reason
    with pytest.raises(InvalidEvent, match="nobody was asked"):
        async with answers(world) as people:
            await people.retry(TRAJECTORY, "c2", person="ada")


async def test_a_dispatched_call_is_done_again_by_a_dispatcher(service: str) -> None:
    world, unknown = new_world(service), [True]

    @tool(effect="opaque", run="dispatch")
    def opaque(what: str) -> str:
        world.ran["c1"] += 1
        if unknown:
            raise ToolOutcomeUnknown(f"nobody knows {unknown.pop()}")
        return f"made {what}"

    tools = ToolSet.of(opaque)
    timing = Timing(grace_s=70.0, outcome_wait_s=1000.0)
    async with asyncio.timeout(30), dispatching(new_dispatcher(world, world.new_log(), tools, clock=world.clock)):
        passing = asyncio.create_task(pass_time(world))
        with pytest.raises(PersonNeeded):
            await world.run(model(), tools=tools, timing=timing)
        passing.cancel()
        await retry(world)
        await world.run(model(), tools=tools, timing=timing)

    assert world.ran["c1"] == 2
    (result,) = world.bodies(ev.ToolResult)
    assert (result.status, result.output.text) == (ResultStatus.OK, "made it")
    assert len(world.bodies(ev.ToolIntent)) == 2
    assert await sound(world, tools)


async def pass_time(world: World) -> None:
    """The grace, once the call was sent."""
    while True:
        await asyncio.sleep(0.02)
        world.clock.advance(5.0 if world.ran["c1"] else 0.0)
