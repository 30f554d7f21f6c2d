"""What is around an agent, asked again in a replay: by the context's hash it is told what changed (DESIGN §7)."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.support.ledger import Ledger, ledger
from tests.support.sessions import ScriptedModel, World, asks, built_in, new_world, says
from tracklog.producers.again import Again
from tracklog.producers.divergence import Cause
from tracklog.producers.model_recorded import RecordedModel
from tracklog.producers.replay import Report, replay
from tracklog.producers.session import Session


@pytest.fixture
def service() -> Iterator[tuple[Ledger, str]]:
    with ledger() as running:
        yield running


def answers() -> list[Any]:
    return [asks(("c1", "readonly")), asks(("c2", "opaque"), ("c3", "local")), says("done")]


async def recorded(url: str) -> World:
    world = new_world(url)
    await world.run(ScriptedModel(*answers()))
    return world


async def asked_again(world: World, model: Any, *again: Again) -> Report:
    setup = replace(world.setup(ScriptedModel()), model=model)
    return await replay(world.events(), built_in(setup), setup=setup, again=again)


async def test_a_model_that_answers_the_same_is_clean_whatever_it_is_called(service: tuple[Ledger, str]) -> None:
    """Ids of calls are no answer, and neither is the order of the keys of their arguments."""
    counted, url = service
    world = await recorded(url)
    made = dict(counted.asked)
    same = ScriptedModel(asks(("x1", "readonly")), asks(("c2", "opaque"), ("y", "local")), says("done"))
    same.name = "another"
    assert (await asked_again(world, same, Again.MODEL)).clean
    assert dict(same.asked) == {0: 1, 1: 1, 2: 1}
    assert (await asked_again(world, RecordedModel.of(world.events(), world.blobs), Again.MODEL)).clean
    assert dict(counted.asked) == made


@pytest.mark.parametrize(
    ("turn", "other"),
    [
        (1, says("I will not")),
        (2, asks(("c2", "opaque"))),
        (2, asks(("c3", "local"), ("c2", "opaque"))),
        (2, asks(("c2", "opaque"), ("c3", "local"), arguments='{"what":"more"}')),
        (3, says("done!")),
    ],
)
async def test_the_same_context_and_another_reply_is_the_model(
    turn: int, other: Any, service: tuple[Ledger, str]
) -> None:
    world = await recorded(service[1])
    given = answers()
    given[turn - 1] = other
    report = await asked_again(world, ScriptedModel(*given), Again.MODEL)
    found = report.divergence
    assert found is not None
    assert (found.turn, found.cause) == (turn, Cause.MODEL)
    assert "a model call, answered with" in found.recorded
    assert "a model call, answered with" in found.asked
    assert (await asked_again(world, ScriptedModel(*given))).clean, "nobody is asked unless it is said"


async def test_another_name_of_the_model_is_the_harness_when_nobody_asks_it(service: tuple[Ledger, str]) -> None:
    world = await recorded(service[1])
    other = ScriptedModel(*answers())
    other.name = "another"
    found = (await asked_again(world, other)).divergence
    assert found is not None
    assert (found.turn, found.cause) == (0, Cause.HARNESS)


async def test_a_step_that_comes_out_otherwise_is_the_environment(service: tuple[Ledger, str]) -> None:
    """A step may read what it likes: the clock and the environment are not found outside the session there."""
    world = new_world(service[1])
    files = itertools.count(3)

    async def program(session: Session) -> None:
        await session.step("fixed", lambda: (time.time() > 0, "PATH" in os.environ))
        await session.build_context([{"role": "user", "content": "book it"}])
        await session.step("count", lambda: next(files))
        await session.call_model()
        await session.end("well")

    setup = world.setup(ScriptedModel(says("done")))
    await world.run(ScriptedModel(says("done")), program)
    assert (await replay(world.events(), program, setup=setup)).clean
    report = await replay(world.events(), program, setup=setup, again=[Again.STEPS])
    found = report.divergence
    assert found is not None
    assert (found.turn, found.cause) == (1, Cause.ENVIRONMENT)
    assert found.recorded == "step 'count', occurrence 0, which gave '3'"
    assert found.asked == "step 'count', occurrence 0, which gave '4'"
