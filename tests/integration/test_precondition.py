"""Preconditions: asked right before each send, here and by dispatchers; nothing is sent without a yes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.support.dispatching import Dying, dispatched, dispatching, new_dispatcher
from tests.support.ledger import effects_of, ledger
from tests.support.sessions import TRAJECTORY, ScriptedModel, World, asks, new_world, says
from tracklog.infra.clock import SystemClock
from tracklog.producers import precondition
from tracklog.producers.answers import Answers
from tracklog.producers.policy_file import PolicyFile
from tracklog.producers.settle import Timing
from tracklog.producers.tools import ToolSet, tool
from tracklog.schemas import events as ev
from tracklog.schemas.approvals import Approver
from tracklog.schemas.errors import ApprovalNeeded, InvalidTool, OutcomeAwaited, PersonNeeded
from tracklog.schemas.values import Choice, ResultStatus

CLASSES = ("readonly", "idempotent", "probe", "opaque")
TIMING = Timing(start_within_s=30.0, grace_s=70.0, outcome_wait_s=10.0, settle_wait_s=1000.0)
Answer = Callable[[], Any]


def _raises() -> Any:
    raise ConnectionError("the seat map is away")


def _hangs() -> Any:
    return asyncio.Event().wait()


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(precondition, "AGAIN_S", 0.01)
    monkeypatch.setattr(precondition, "ASK_S_MAX", 0.1)
    with ledger() as (_, url):
        world = new_world(url)
        world.log_clock = SystemClock()
        yield world


def _with(tools: ToolSet, answer: Answer, asked: list[str] | None = None) -> ToolSet:
    """The tools, each with a precondition that answers so."""

    async def check(context: Any, arguments: Any) -> Any:
        if asked is not None:
            asked.append(context.call_id)
        said = answer()
        return await said if asyncio.iscoroutine(said) else said

    return ToolSet.of(*(replace(one, precondition=check) for one in tools if one.effect != "local"))


async def _run(world: World, model: ScriptedModel, tools: ToolSet, place: str) -> None:
    """An agent with these tools, run here or by a dispatcher beside it."""
    changes: dict[str, Any] = {"timing": TIMING, "clock": SystemClock()}
    if place == "inline":
        await world.run(model, tools=tools, **changes)
        return
    tools = dispatched(tools)
    async with dispatching(new_dispatcher(world, world.new_log(), tools)):
        await world.run(model, tools=tools, **changes)


@pytest.mark.parametrize("place", ["inline", "dispatch"])
@pytest.mark.parametrize("effect", CLASSES)
@pytest.mark.parametrize(
    ("answer", "words", "tries"),
    [
        (lambda: False, "its precondition does not hold", 1),
        (lambda: "seat 3A is taken", "its precondition does not hold: seat 3A is taken", 1),
        (lambda: None, "could not be checked: it returned NoneType", precondition.TRIES_MAX),
        (_raises, "could not be checked: it raised ConnectionError: the seat map is away", precondition.TRIES_MAX),
        (_hangs, "could not be checked: no answer within 0.1 s", precondition.TRIES_MAX),
    ],
    ids=["false", "words", "none", "raises", "hangs"],
)
async def test_a_call_whose_precondition_is_not_met_is_not_made_and_its_model_is_told_why(
    world: World, effect: str, place: str, answer: Answer, words: str, tries: int
) -> None:
    # given a tool whose precondition says no, or does not say
    asked: list[str] = []
    tools = _with(world.tools(), answer, asked)
    # when the model calls it
    await _run(world, ScriptedModel(asks(("call-1", effect)), says("done")), tools, place)
    # then nothing was done, and the reason is the result
    assert not world.ran
    (result,) = world.bodies(ev.ToolResult)
    assert result.status is ResultStatus.EXPIRED
    assert words in result.output.text
    assert len(asked) == tries


@pytest.mark.parametrize("place", ["inline", "dispatch"])
async def test_a_precondition_that_answers_at_last_lets_the_call_be_made_once(world: World, place: str) -> None:
    answers = iter([ConnectionError("away"), None, True, True])

    def answer() -> Any:
        said = next(answers)
        if isinstance(said, Exception):
            raise said
        return said

    tools = _with(world.tools(), answer)
    await _run(world, ScriptedModel(asks(("call-1", "opaque")), says("done")), tools, place)

    assert world.ran == {"call-1": 1}
    assert [one.status for one in world.bodies(ev.ToolResult)] == [ResultStatus.OK]


@pytest.mark.parametrize("place", ["inline", "dispatch"])
async def test_it_is_asked_again_after_an_approval_that_took_days(world: World, place: str) -> None:
    # given a held call whose seat was free when it was asked for
    free = [True]
    tools = _with(world.tools(), lambda: free[0] or "seat 3A is taken")
    tools = dispatched(tools) if place == "dispatch" else tools
    rules = PolicyFile(b'default = "allow"\n[[rules]]\nname = "r"\nwhen = "effect == \'opaque\'"\nthen = "hold"\n', "p")
    model = ScriptedModel(asks(("c1", "opaque")), says("done"))
    changes: dict[str, Any] = {"tools": tools, "policy": rules, "timing": TIMING}
    with pytest.raises(ApprovalNeeded):
        await world.run(model, **changes)
    # when it is approved days later, and the seat has gone meanwhile
    world.clock.advance(3 * 86_400.0)
    free[0] = False
    await Answers(world.new_log(), clock=world.clock).answer(
        TRAJECTORY, "c1", who=Approver("ada"), choice=Choice.APPROVE
    )
    async with dispatching(new_dispatcher(world, world.new_log(), tools, clock=world.clock)):
        await world.run(model, **changes)
    # then the call is not made
    assert effects_of(world.ledger_url, "c1") == 0
    (result,) = world.bodies(ev.ToolResult)
    assert "seat 3A is taken" in result.output.text


@pytest.mark.parametrize("effect", ["idempotent", "probe", "opaque"])
async def test_a_call_that_may_have_happened_is_not_called_off_because_its_precondition_fails_now(
    world: World, effect: str
) -> None:
    # given a dispatcher that dies right after the effect, by which the precondition does not hold any more
    world.log_clock = world.clock
    tools = dispatched(_with(world.tools(), lambda: effects_of(world.ledger_url, "call-1") == 0))
    model = ScriptedModel(asks(("call-1", effect)), says("done"))
    changes: dict[str, Any] = {"tools": tools, "timing": Timing(grace_s=70.0, outcome_wait_s=0.0)}
    with pytest.raises(OutcomeAwaited):
        await world.run(model, **changes)
    dying = Dying(world, "after the effect")
    log = world.new_log()
    log.faults = dying
    async with dispatching(new_dispatcher(world, log, tools, clock=world.clock)):
        await asyncio.wait_for(dying.died.wait(), 10.0)
    # when the next one takes it up, long after anything can still be under way
    world.dead, world.die_at_point = False, None
    world.clock.advance(2 * 86_400.0)
    changes["timing"] = TIMING
    asked = False
    async with dispatching(new_dispatcher(world, world.new_log(), tools, clock=world.clock, name="next")):
        try:
            await world.run(model, **changes)
        except PersonNeeded:
            asked = True
    # then it happened once, and that is found out by the probe or a person
    assert effects_of(world.ledger_url, "call-1") == 1
    assert asked == (effect != "probe")
    assert [one.status for one in world.bodies(ev.ToolResult)] == ([] if asked else [ResultStatus.OK])


def test_a_precondition_takes_the_tool_s_own_arguments_and_no_local_tool_has_one() -> None:
    def free(seat: str) -> bool:
        return True

    with pytest.raises(InvalidTool, match="the precondition of tool 'book' asks for seat"):

        @tool(precondition=free)
        def book(what: str) -> str:
            return what

    with pytest.raises(InvalidTool, match="local and has a precondition"):

        @tool(effect="local", precondition=free)
        def write(seat: str) -> str:
            return seat
