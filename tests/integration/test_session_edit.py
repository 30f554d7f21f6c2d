"""A held call whose arguments a person edits: ruled on anew, made once with what was edited, the same ever after."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.ledger import effects_of, ledger
from tests.support.sessions import TRAJECTORY, ScriptedModel, World, asks, built_in, new_world, says
from tests.support.writing import read_accepted
from tracklog.producers.answers import Answers
from tracklog.producers.fork import forked
from tracklog.producers.lineage import read_inherited
from tracklog.producers.policy_file import PolicyFile
from tracklog.producers.replay import replay
from tracklog.producers.tools import ToolSet, tool
from tracklog.schemas import events as ev
from tracklog.schemas.approvals import Approver
from tracklog.schemas.errors import ApprovalNeeded, InputError
from tracklog.schemas.fold import fold_all
from tracklog.schemas.state import State
from tracklog.schemas.values import Choice, ResultStatus, Ruling

EDITED = '{"what":"less"}'
HELD = """
default = "allow"

[budgets]
tool_calls = 1

[[rules]]
name = "never"
when = "has(args.what) && args.what == 'forbidden'"
then = "deny"

[[rules]]
name = "dear"
when = "has(args.what) && args.what == 'dear'"
then = "hold"
may_approve = ["bob"]

[[rules]]
name = "bookings"
when = "effect == 'opaque' || effect == 'idempotent'"
then = "hold"
may_approve = ["ada"]
"""
RULES = PolicyFile(HELD.encode(), "policy.toml")


@pytest.fixture
def service() -> Iterator[str]:
    with ledger() as running:
        yield running[1]


def model(tool: str = "opaque") -> ScriptedModel:
    return ScriptedModel(asks(("c1", tool)), says("done"))


async def held(url: str, tool: str = "opaque") -> World:
    world = new_world(url)
    with pytest.raises(ApprovalNeeded):
        await world.run(model(tool), policy=RULES)
    return world


async def edit(world: World, arguments: str = EDITED, person: str = "ada", **words: Any) -> None:
    log = world.new_log()
    answers = Answers(log, clock=world.clock)
    await answers.answer(TRAJECTORY, "c1", who=Approver(person), choice=Choice.EDIT, arguments=arguments, **words)
    log.close()


def made_with(world: World) -> list[str]:
    return [body.arguments.text for body in world.bodies(ev.ToolIntent)]


async def clean(world: World) -> bool:
    setup = world.setup(model(), policy=RULES)
    return (await replay(world.events(), built_in(setup), setup=setup)).clean


async def test_an_edited_call_is_made_once_with_what_was_edited(service: str) -> None:
    """Its budget allows one call: the edited one is the same call, and counted once."""
    world = await held(service)
    await edit(world)

    await world.run(model(), policy=RULES)

    assert made_with(world) == [EDITED]
    assert effects_of(service, "c1") == 1
    first, second = world.bodies(ev.Authorized)
    assert (first.ruling, second.ruling) == (Ruling.HOLD, Ruling.ALLOW)
    assert second.rule == "edited by ada, who may decide: bookings"
    assert first.budget_remaining == second.budget_remaining
    assert world.bodies(ev.ToolIntent)[0].request_hash == world.bodies(ev.ApprovalResolved)[0].request_hash
    assert world.bodies(ev.ToolResult)[0].status is ResultStatus.OK
    state = fold_all(State(TRAJECTORY), world.events())
    assert (state.irregular, state.ended) == (0, True)
    assert await clean(world)


async def test_a_run_killed_at_any_append_makes_the_edited_call_once_and_replays(service: str) -> None:
    for at in range(40):
        world, before = await held(service, "idempotent"), effects_of(service, "c1")
        await edit(world)
        world.die_at_append = at
        died = await world.crash(model("idempotent"), policy=RULES)
        world.die_at_append = None
        await world.run(model("idempotent"), policy=RULES)
        assert made_with(world) == [EDITED], at
        assert effects_of(service, "c1") == before + 1, at
        assert [body.ruling for body in world.bodies(ev.Authorized)] == [Ruling.HOLD, Ruling.ALLOW], at
        assert await clean(world), at
        if not died:
            return
    raise AssertionError("the run never came to its end")


async def test_an_edit_to_what_the_policy_forbids_is_refused_and_the_model_is_told(service: str) -> None:
    world = await held(service)
    await edit(world, '{"what":"forbidden"}')

    await world.run(model(), policy=RULES)

    (result,) = world.bodies(ev.ToolResult)
    assert (result.status, result.output.text) == (ResultStatus.DENIED, "refused: never")
    assert effects_of(service, "c1") == 0
    assert await clean(world)


async def test_an_edit_to_what_another_person_decides_about_is_held_for_that_one(service: str) -> None:
    """Given ada's edit to what only bob may approve; bob edits it again, and his is what is made."""
    world = await held(service)
    await edit(world, '{"what":"dear"}')
    with pytest.raises(ApprovalNeeded, match="'dear'"):
        await world.run(model(), policy=RULES)
    assert await clean(world)
    await edit(world, '{"what":"dear"}', person="bob")

    await world.run(model(), policy=RULES)

    requests = world.bodies(ev.ApprovalRequested)
    assert [one.may_approve for one in requests] == [("ada",), ("bob",)]
    assert requests[0].argument_hash != requests[1].argument_hash
    assert made_with(world) == ['{"what":"dear"}']
    assert effects_of(service, "c1") == 1
    assert await clean(world)


async def test_arguments_that_the_tool_does_not_take_are_refused_and_the_call_goes_on_waiting(service: str) -> None:
    world = await held(service)
    await edit(world, '{"whom":3}')
    with pytest.raises(ApprovalNeeded):
        await world.run(model(), policy=RULES)

    (refused,) = world.bodies(ev.InboxRefused)
    assert "the arguments do not fit" in refused.reason
    await edit(world)
    await world.run(model(), policy=RULES)
    assert made_with(world) == [EDITED]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"choice": Choice.EDIT}, "no arguments"),
        ({"choice": Choice.APPROVE, "arguments": "{}"}, "with no answer and arguments"),
        ({"choice": Choice.EDIT, "arguments": "[1]"}, "no JSON object"),
        ({"choice": Choice.EDIT, "arguments": "{"}, "not JSON"),
    ],
)
async def test_what_is_no_edit_is_said_before_anything_is_posted(words: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        await Answers(new_world("").new_log()).answer(TRAJECTORY, "c1", who=Approver("ada"), **words)


async def test_another_edit_than_is_recorded_is_a_divergence(service: str) -> None:
    """The program cannot ask for other arguments than the accepted edit says: rules that rule otherwise are found."""
    world = await held(service)
    await edit(world)
    await world.run(model(), policy=RULES)
    strict = PolicyFile(HELD.replace("'forbidden'", "'less'").encode(), "policy.toml")
    setup = world.setup(model(), policy=strict)

    report = await replay(world.events(), built_in(setup), setup=setup)

    assert report.divergence is not None
    assert "deny for call 'c1': never" in report.divergence.asked


async def test_a_fork_is_given_what_the_edited_call_gave_and_inherits_an_edit(service: str) -> None:
    """At the turn of the edit the fork's model proposes the same; after it the edit is inherited."""
    world = await held(service)
    await edit(world)
    await world.run(model(), policy=RULES)
    for turn in (1, 2):
        setup, name = world.setup(model(), policy=RULES), f"fork-{turn}"
        async with (
            world.process() as (log, producer),
            forked(producer, name, origin=TRAJECTORY, turn=turn, log=log, setup=setup) as session,
        ):
            await built_in(setup)(session)
        own = read_accepted(world.new_log(), name)
        inherited = read_inherited(world.new_log(), "tracklog.events", own)
        given = [event.body.output for event in (*inherited, *own) if isinstance(event.body, ev.ToolResult)]
        assert given == [body.output for body in world.bodies(ev.ToolResult)]
        assert effects_of(service, "c1") == 1
        assert (await replay(own, built_in(setup), setup=setup, inherited=inherited)).clean


async def test_calls_side_by_side_are_edited_and_approved_each_for_itself(service: str) -> None:
    rules = PolicyFile(b'default = "hold"', "policy.toml")
    seen: list[str] = []

    @tool(effect="readonly")
    def look(what: str) -> str:
        seen.append(what)
        return what

    world, tools = new_world(service), ToolSet.of(look)
    script = ScriptedModel(asks(("a", "look"), ("b", "look")), says("done"))
    decisions: dict[str, dict[str, Any]] = {
        "a": {"choice": Choice.EDIT, "arguments": EDITED},
        "b": {"choice": Choice.APPROVE},
    }
    for call_id, words in decisions.items():
        with pytest.raises(ApprovalNeeded):
            await world.run(script, policy=rules, tools=tools)
        log = world.new_log()
        await Answers(log, clock=world.clock).answer(TRAJECTORY, call_id, who=Approver("ada"), **words)
        log.close()
    await world.run(script, policy=rules, tools=tools)

    assert sorted(seen) == ["it", "less"]
    setup = world.setup(script, policy=rules, tools=tools)
    assert (await replay(world.events(), built_in(setup), setup=setup)).clean
