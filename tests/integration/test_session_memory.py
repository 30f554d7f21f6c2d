"""What goes over a checkpoint: timers, messages, counts of calls; and what a fork has of its origin's files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.test_session_checkpoint import NOTES, OFTEN, script, settings
from tests.integration.test_session_inbox import post, said
from tests.support.ledger import Ledger, ledger
from tests.support.sessions import TRAJECTORY, ScriptedModel, World, asks, built_in, new_world, says
from tracklog.infra.blobs import open_blobs
from tracklog.producers.divergence import Cause, Diverged
from tracklog.producers.fork import forked
from tracklog.producers.replay import replay
from tracklog.producers.session import Session
from tracklog.producers.tools import CallContext, ToolSet, tool
from tracklog.producers.turn import run_memory
from tracklog.schemas import events as ev
from tracklog.schemas.errors import Stuck

LAST = 7


@pytest.fixture(autouse=True)
def every_opening_takes_the_shortcut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tracklog.producers.shortcut.RECORDS_MIN", 0)


@pytest.fixture
def service() -> Iterator[tuple[Ledger, str]]:
    with ledger() as running:
        yield running


def attentive(world: World, turns: list[int]) -> Callable[[Session], Any]:
    """Sets a timer every third turn, waits for a message every other one, and ends with all that it saw."""

    async def turn(session: Session, memory: dict[str, Any]) -> dict[str, Any]:
        number = memory["turn"]
        turns.append(number)
        if number % 3 == 0:
            await session.sleep_turns(2, f"set in {number}")
        heard = [dict(await session.receive())] if number % 2 else []
        await session.build_context([{"role": "user", "content": f"turn {number}"}, *heard])
        saw = [*memory["saw"], [*session.fired, *(one["content"] for one in heard)]]
        if number == LAST:
            await session.end(saw)
        world.clock.advance(1.0)
        return {"turn": number + 1, "saw": saw}

    return lambda session: run_memory(session, turn, {"turn": 0, "saw": []})


SAW = '[[],["set in 0","message 0"],[],["message 1"],["set in 3"],["message 2"],[],["set in 6","message 3"]]'


@pytest.mark.parametrize("cut", range(5, 40, 3))
async def test_timers_and_messages_go_over_checkpoints(cut: int) -> None:
    world = new_world("")
    world.from_checkpoint = True
    for number in range(4):
        await post(world, said(f"message {number}"), number)
    turns: list[int] = []
    world.die_at_append = cut
    if not await world.crash(ScriptedModel(), attentive(world, turns), failures_a_day=OFTEN):
        assert cut > 35
    again, finished = list[int](), len(turns)
    world.die_at_append = None

    await world.run(ScriptedModel(), attentive(world, again), failures_a_day=OFTEN)

    assert world.bodies(ev.TaskEnded)[0].result.text == SAW
    if world.bodies(ev.CheckpointTaken) and not cut > 35:
        assert again[0] >= finished - 2  # it did not begin anew
    assert len(world.bodies(ev.TimerSet)) == 3
    assert (await replay(world.events(), attentive(world, []), setup=world.setup(ScriptedModel()))).clean


async def test_calls_that_were_repeated_before_a_checkpoint_count_after_it() -> None:
    """Given three calls that are the same before a crash, when it goes on from memory, then the next one is stuck."""
    world = new_world("")
    world.from_checkpoint = True
    model = ScriptedModel(*(asks((f"c{n}", "readonly")) for n in range(9)))

    class Dying(ScriptedModel):
        async def reply(self, request: Any, **options: Any) -> Any:
            if request.replies_before == 3:
                raise RuntimeError("the process is told to leave")
            return await model.reply(request, **options)

    with pytest.raises(RuntimeError):
        await world.run(Dying(), repeats_max=4)
    assert kept(world) == 1
    with pytest.raises(Stuck, match="5 times in a row"):
        await world.run(model, repeats_max=4)
    assert len(world.bodies(ev.ToolIntent)) == 4


def kept(world: World) -> int:
    return len(world.bodies(ev.CheckpointTaken))


async def fork(world: World, root: Path, model: ScriptedModel, **changes: Any) -> None:
    setup = world.setup(model, **settings(world, root, **changes))
    async with (
        world.process() as (log, producer),
        forked(producer, "fork", origin=TRAJECTORY, turn=3, log=log, setup=setup, allow=["write"]) as session,
    ):
        await built_in(setup)(session)


@pytest.mark.parametrize("failures_a_day", [OFTEN, 0.0])
async def test_a_fork_has_the_files_of_its_origin_as_they_were_at_its_turn(
    failures_a_day: float, tmp_path: Path, service: tuple[Ledger, str]
) -> None:
    """Given a fork at the third turn, then it has what two turns wrote, from a checkpoint or made again."""
    world = World(service[1], open_blobs(str(tmp_path / "blobs")))
    world.from_checkpoint = True
    await world.run(script(), **settings(world, tmp_path / "origin", failures_a_day=failures_a_day))
    done = asks(("d1", "write")), says("other end")
    before = dict(world.ran)

    await fork(world, tmp_path / "fork", ScriptedModel(*script().answers[:2], *done), failures_a_day=failures_a_day)

    assert (tmp_path / "fork" / "notes").read_text() == "c1\nc2\nc3\nd1\n"
    assert (tmp_path / "origin" / "notes").read_text() == NOTES
    made = {name for name in world.ran if world.ran[name] != before.get(name, 0)}
    assert made == ({"d1"} if failures_a_day else {"c1", "c2", "c3", "d1"})


async def test_a_fork_whose_files_come_out_otherwise_is_a_divergence_of_the_environment(
    tmp_path: Path, service: tuple[Ledger, str]
) -> None:
    world = World(service[1], open_blobs(str(tmp_path / "blobs")))
    await world.run(script(), **settings(world, tmp_path / "origin", failures_a_day=0.0))

    @tool(effect="local", name="write")
    def other(what: str, context: CallContext) -> str:
        return "0 lines"

    changed = ToolSet.of(*world.tools(), other)
    with pytest.raises(Diverged) as found:
        await fork(world, tmp_path / "fork", script(), tools=changed, failures_a_day=0.0)
    assert found.value.divergence.cause is Cause.ENVIRONMENT
