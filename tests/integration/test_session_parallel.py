"""Calls of one turn side by side, finishing in any order, killed anywhere: nothing twice, and it replays clean."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator

import pytest

from tests.support.ledger import Ledger, ledger
from tests.support.sessions import KEY_TTL_S, PAST_GRACE_S, ScriptedModel, World, asks, built_in, new_world, says
from tracklog.producers.replay import replay
from tracklog.producers.session import Session
from tracklog.producers.tools import CallContext, ToolSet, tool
from tracklog.producers.writer import TrajectoryWriter
from tracklog.schemas.errors import SessionMisused
from tracklog.schemas.events import ContextBuilt, ModelReplied, TaskEnded, ToolIntent, ToolResult

CALLS = 8
KINDS = ("readonly", "idempotent")


@pytest.fixture
def service() -> Iterator[tuple[Ledger, str]]:
    with ledger() as running:
        yield running


def model() -> ScriptedModel:
    calls = [(f"c{n}", KINDS[n % 2]) for n in range(CALLS)]
    return ScriptedModel(asks(*calls), asks(("d1", "idempotent"), ("d2", "idempotent")), says("done"))


def tools(world: World, counted: Ledger, dice: random.Random) -> ToolSet:
    """Each call takes its own number of turns of the event loop; drawn anew for every process."""

    async def late(context: CallContext) -> str:
        for _ in range(dice.randrange(40)):
            await asyncio.sleep(0)
        return context.call_id

    @tool(effect="readonly")
    async def readonly(what: str, context: CallContext) -> str:
        return f"found by {await late(context)}"

    @tool(effect="idempotent", key_ttl_s=KEY_TTL_S)
    async def idempotent(what: str, context: CallContext) -> str:
        receipt = counted.make(context.call_id, context.idempotency_key)
        await late(context)
        return receipt

    return ToolSet.of(readonly, idempotent)


@pytest.mark.parametrize("seed", range(25))
async def test_eight_calls_side_by_side_killed_anywhere_and_again_come_out_once(
    seed: int, service: tuple[Ledger, str]
) -> None:
    counted, url = service
    dice, world, answers = random.Random(seed), new_world(url), model()
    for _ in range(3):
        world.die_at_append = dice.randrange(1, 30)
        setup = world.setup(answers, tools=tools(world, counted, dice))
        if not await world.crash(answers, built_in(setup), tools=setup.tools):
            break
        world.clock.advance(PAST_GRACE_S)
    world.die_at_append = None
    setup = world.setup(answers, tools=tools(world, counted, dice))
    await world.run(answers, built_in(setup), tools=setup.tools)

    effects = {f"c{n}": 1 for n in range(CALLS) if n % 2} | {"d1": 1, "d2": 1}
    assert counted.made == effects
    assert len(world.bodies(ToolResult)) == CALLS + 2
    assert len(world.bodies(ModelReplied)) == 3
    assert len(world.bodies(TaskEnded)) == 1
    report = await replay(world.events(), built_in(setup), setup=setup)
    assert (report.divergence, report.turns) == (None, 3)


@pytest.mark.parametrize("turns", [1, 6])
async def test_a_turn_with_one_call_costs_one_barrier(
    turns: int, service: tuple[Ledger, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Besides the barriers of opening, ending and leaving; at most three are promised."""
    _, url = service
    world, barrier, count = new_world(url), TrajectoryWriter.barrier, [0]

    async def counting(self: TrajectoryWriter) -> None:
        count[0] += 1
        await barrier(self)

    monkeypatch.setattr(TrajectoryWriter, "barrier", counting)
    await world.run(ScriptedModel(says("nothing to do")))
    alone, count[0] = count[0], 0
    again = new_world(url)
    await again.run(ScriptedModel(*(asks((f"c{n}", "readonly")) for n in range(turns)), says("done")))
    assert count[0] - alone == turns


async def test_calls_side_by_side_share_their_barriers(
    service: tuple[Ledger, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, url = service
    world, confirm, count = new_world(url), TrajectoryWriter.confirm, [0]

    async def counting(self: TrajectoryWriter) -> object:
        count[0] += 1
        return await confirm(self)

    monkeypatch.setattr(TrajectoryWriter, "confirm", counting)
    calls = [(f"c{n}", "readonly") for n in range(CALLS)]
    await world.run(ScriptedModel(asks(*calls), says("done")))
    assert len(world.bodies(ToolIntent)) == CALLS
    assert count[0] <= 5


async def test_what_could_not_be_read_back_is_refused_when_it_is_asked_for(service: tuple[Ledger, str]) -> None:
    """A step beside a context has no place in the order of the record."""
    _, url = service
    world, answers = new_world(url), ScriptedModel(says("done"))

    async def program(session: Session) -> None:
        started, go_on = asyncio.Event(), asyncio.Event()

        async def slow() -> int:
            started.set()
            await go_on.wait()
            return 1

        beside = asyncio.create_task(session.step("slow", slow))
        await started.wait()
        with pytest.raises(SessionMisused, match="beside"):
            await session.build_context([{"role": "user", "content": "go"}])
        go_on.set()
        await beside
        with pytest.raises(SessionMisused, match="without a context"):
            await session.call_model()
        await session.end()

    await world.run(answers, program)
    assert world.bodies(ContextBuilt) == []


async def test_steps_side_by_side_are_known_by_name_whatever_order_they_end_in(service: tuple[Ledger, str]) -> None:
    _, url = service
    world, answers = new_world(url), ScriptedModel()

    def program(order: str) -> object:
        async def run(session: Session) -> list[int]:
            async def one(name: str) -> int:
                async def value() -> int:
                    for _ in range(5 * order.index(name)):
                        await asyncio.sleep(0)
                    return ord(name)

                first = await session.step(name, value)
                return first + await session.step(f"after {name}", value)

            got = list(await asyncio.gather(*(one(name) for name in "abc")))
            await session.end(got)
            return got

        return run

    await world.run(answers, program("cab"))  # type: ignore[arg-type]
    for order in ("abc", "bca"):
        report = await replay(world.events(), program(order), setup=world.setup(answers))  # type: ignore[arg-type]
        assert report.divergence is None
