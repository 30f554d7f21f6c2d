"""Two trajectories side by side: the first turn where they differ and how; the same where only names differ."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.test_session_fork import FORK, Other, origin_of, run_fork
from tests.integration.test_session_policy import policy
from tests.support.importing import chat_record, chat_run, events_of_plan
from tests.support.ledger import Ledger, ledger
from tests.support.sessions import TRAJECTORY, ScriptedModel, World, asks, new_world, says
from tracklog.consumers.comparing import Comparison, compare
from tracklog.consumers.turns import Turns, read_turns
from tracklog.infra.blobs import open_blobs
from tracklog.producers.fork import Changes
from tracklog.producers.tools import ToolSet, tool

BUDGET = 'default = "allow"\n[budgets]\ntool_calls = 1\n'


@pytest.fixture
def service() -> Iterator[tuple[Ledger, str]]:
    with ledger() as running:
        yield running


def turns_of(world: World, trajectory_id: str = TRAJECTORY) -> Turns:
    return read_turns(world.new_log(), "tracklog.events", trajectory_id, world.blobs)


def first(found: Comparison) -> tuple[int | None, str] | None:
    return None if found.first is None else found.first[:2]


def model(*, first_id: str = "c1", second: str = '{"what":"it"}', last: str = "done") -> ScriptedModel:
    return ScriptedModel(asks((first_id, "readonly")), asks((f"{first_id}b", "readonly"), arguments=second), says(last))


async def ran(answers: ScriptedModel, **changes: Any) -> Turns:
    world = new_world("")
    await world.run(answers, **changes)
    return turns_of(world)


async def test_runs_that_differ_in_names_and_spaces_alone_are_the_same() -> None:
    """Given other ids of calls, JSON written otherwise, and a run that was resumed."""
    left = await ran(model())
    world = new_world("")
    world.die_at_append = 7
    assert await world.crash(model(first_id="x9", second='{ "what" : "it" }'))
    world.die_at_append = None
    await world.run(model(first_id="x9", second='{ "what" : "it" }'))
    assert left.contexts[3].body.context_hash != turns_of(world).contexts[3].body.context_hash

    found = compare(left, turns_of(world))

    assert found.same
    assert found.first is None
    assert [pair.same for pair in found.turns] == [True] * 4
    assert found.events is not None
    assert "ModelReplied" in found.events, "event by event they are told apart"


@tool(name="readonly", effect="readonly")
def otherwise(what: str) -> str:
    return f"saw {what}"


@pytest.mark.parametrize(
    ("changes", "expected", "words"),
    [
        ({"last": "well done"}, (3, "reply"), ("done", "well done")),
        ({"second": '{"what":"them"}'}, (2, "arguments"), ('{"what":"it"}', '{"what":"them"}')),
        ({"tools": ToolSet.of(otherwise)}, (0, "versions"), ("tools", "tools")),
        ({"prompt": "be brief"}, (0, "versions"), ("prompt", "prompt")),
        ({"policy": policy(BUDGET)}, (0, "task"), ("book a trip", "book a trip")),
        ({"task": "book two"}, (0, "task"), ("book a trip", "book two")),
        ({"sampling": {"seed": "1"}}, (0, "versions"), ("sampling none", "'seed': '1'")),
    ],
)
async def test_one_planted_difference_is_found_where_it_is(
    changes: dict[str, Any], expected: tuple[int, str], words: tuple[str, str]
) -> None:
    said = {name: changes[name] for name in ("last", "second") if name in changes}
    left = await ran(model())

    found = compare(left, await ran(model(**said), **{n: v for n, v in changes.items() if n not in said}))

    assert first(found) == expected
    assert found.first is not None
    assert words[0] in found.first[2].left
    assert words[1] in found.first[2].right


async def test_outputs_rulings_readings_and_ends_are_told_apart() -> None:
    """Given the same schemas, so that no version differs."""

    def of(text: str) -> ToolSet:
        @tool(name="look", effect="readonly")
        def look(what: str) -> str:
            return text

        return ToolSet.of(look)

    answers = (asks(("c1", "look")), says("done"))
    left = await ran(ScriptedModel(*answers), tools=of("a"))
    found = compare(left, await ran(ScriptedModel(*answers), tools=of("b")))
    assert first(found) == (1, "outputs")
    assert [tuple(pair.differs) for pair in found.turns] == [(), ("outputs",), ("context",)]
    assert "message 3 (tool): b" in found.turns[2].differs["context"].right

    refused = policy('default = "deny"\n')
    found = compare(left, await ran(ScriptedModel(*answers), tools=of("a"), policy=refused))
    assert first(found) == (1, "rulings")

    def reading(value: str) -> Any:
        async def program(session: Any) -> None:
            await session.build_context([{"role": "user", "content": "go"}])
            await session.call_model()
            await session.step("weather", lambda: value)
            await session.now_us()
            await session.end("rain" if value == "sun" else value)

        return program

    worlds = [new_world(""), new_world(""), new_world("")]
    for world, value in zip(worlds, ("sun", "rain", "rain"), strict=True):
        await world.run(ScriptedModel(says("hm")), reading(value))
    sun, rain, again = (turns_of(world) for world in worlds)
    found = compare(sun, rain)
    assert [tuple(pair.differs) for pair in found.turns] == [(), ("readings",)]
    assert not found.ends_differ
    assert compare(rain, again).same


async def test_a_run_that_goes_on_longer_or_has_not_ended_differs_there() -> None:
    left = await ran(model())
    world = new_world("")
    world.die_at_append = 12
    assert await world.crash(model())

    found = compare(left, turns_of(world))

    assert first(found) is not None
    assert found.ends.right == "not ended"
    assert found.ends_differ
    assert found.turns[-1].differs["turn"].right == "there is none"
    assert [pair.same for pair in found.turns][:2] == [True, True]


async def test_a_fork_shares_what_it_inherits_and_differs_from_its_turn_on(service: tuple[Ledger, str]) -> None:
    world = await origin_of(service[1])
    await run_fork(world, Other(), changes=Changes(prompt="be brief"))
    await run_fork(world, Other(), trajectory_id="trip-1c", changes=Changes(prompt="be brief"))
    await run_fork(world, Other(), trajectory_id="trip-1d", origin=FORK, turn=3)

    found = compare(turns_of(world), turns_of(world, FORK))

    assert found.shared is not None
    assert found.shared.trajectory_id == TRAJECTORY
    assert [pair.shared for pair in found.turns] == [True, True, False, False]
    assert first(found) == (2, "versions")
    assert "context" in found.turns[2].differs
    assert found.events is None
    assert compare(turns_of(world, FORK), turns_of(world, "trip-1c")).same
    of_fork = compare(turns_of(world, FORK), turns_of(world, "trip-1d"))
    assert [pair.shared for pair in of_fork.turns] == [True, True, True, False]
    assert of_fork.shared is not None
    assert of_fork.shared.trajectory_id == FORK


def imported(**changes: Any) -> Turns:
    blobs, run = open_blobs("memory://"), chat_run(**changes)
    return Turns(run.trajectory_id, (), events_of_plan(run, blobs), blobs)


def test_imported_runs_are_compared_by_what_was_said() -> None:
    """Given a call that goes by another id, and then another answer of the tool too."""
    messages = [dict(one) for one in chat_record()["messages"]]
    renamed = [{**one, "tool_call_id": "x9"} if "tool_call_id" in one else one for one in messages]
    renamed[2]["tool_calls"] = [{**renamed[2]["tool_calls"][0], "id": "x9"}]
    assert compare(imported(), imported(messages=renamed)).same

    renamed[3]["content"] = "it is not here"
    found = compare(imported(), imported(messages=renamed))

    assert first(found) == (1, "outputs")
    assert [tuple(pair.differs) for pair in found.turns] == [(), ("outputs",), ("context",)]


async def test_a_reply_whose_blob_is_gone_differs_from_another() -> None:
    left, right = await ran(ScriptedModel(says("x" * 100_000))), await ran(model())
    gone = Turns(TRAJECTORY, (), left.events, open_blobs("memory://"))

    found = compare(gone, right)

    assert first(found) == (1, "reply")
