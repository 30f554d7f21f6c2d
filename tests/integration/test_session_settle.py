"""What becomes of a call that may have happened: time, fencing, keys, probes, changed tools (DESIGN §8)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from tests.support.dispatching import dispatched, new_dispatcher
from tests.support.ledger import Ledger, ledger, make_effect
from tests.support.sessions import (
    KEY_TTL_S,
    PAST_GRACE_S,
    TIMING,
    TRAJECTORY,
    ScriptedModel,
    World,
    asks,
    built_in,
    new_world,
    says,
)
from tracklog.infra.log.memory import Fault
from tracklog.producers.answers import Answers
from tracklog.producers.opening import opened
from tracklog.producers.pen import WriterPen
from tracklog.producers.settle import Timing
from tracklog.producers.tools import CallContext, ProbeAnswer, Probed, Tool, ToolSet, tool
from tracklog.producers.versions import Drift
from tracklog.schemas.errors import Fenced, InvalidEvent, InvalidTool, PersonNeeded, StillInDoubt, ToolOutcomeUnknown
from tracklog.schemas.events import Escalated, InDoubt, TaskEnded, ToolResult
from tracklog.schemas.values import Driver, Effect, ResultStatus, Settled

INTENT = 6
"""The append that is the intent, in a run with one call."""


@pytest.fixture
def service() -> Iterator[tuple[Ledger, str]]:
    with ledger() as running:
        yield running


def script(effect: str = "opaque") -> ScriptedModel:
    return ScriptedModel(asks(("c1", effect)), says("done"))


async def killed_after_the_effect(world: World, effect: str) -> ScriptedModel:
    model = script(effect)
    world.die_at_point = "after the effect"
    assert await world.crash(model)
    world.die_at_point = None
    return model


def outcome(world: World) -> tuple[ResultStatus, Settled]:
    (result,) = world.bodies(ToolResult)
    return result.status, result.settled


@pytest.mark.parametrize("effect", [Effect.OPAQUE, Effect.IDEMPOTENT, Effect.PROBE])
async def test_an_owner_that_was_overtaken_before_its_intent_does_nothing(
    effect: Effect, service: tuple[Ledger, str]
) -> None:
    """Given another claim just before the intent, the intent is not accepted: no effect [Z02]."""
    counted, url = service
    world, model = new_world(url), script(effect)
    async with world.process() as (log, producer), world.process() as (_, other):
        setup = world.setup(model)

        async def overtaken() -> None:
            async with opened(producer, TRAJECTORY, log=log, setup=setup) as session:
                await session.build_context([{"role": "user", "content": "go"}])
                reply = await session.call_model()
                await session.authorize(reply.tool_calls[0])
                await other.claim(TRAJECTORY, owner="other", driver=Driver.LIBRARY)
                await session.call_tool(reply.tool_calls[0])

        with pytest.raises(Fenced):
            await overtaken()
    assert counted.asked == {}


async def test_an_intent_that_may_be_lost_is_waited_for(service: tuple[Ledger, str]) -> None:
    """Given an append of the intent that is neither stored nor reported in time, nothing happens before it is."""
    counted, url = service
    world, model = new_world(url), script()
    seen: list[int] = []

    async with (
        world.process() as (log, producer),
        opened(producer, TRAJECTORY, log=log, setup=world.setup(model)) as session,
    ):
        await session.build_context([{"role": "user", "content": "go"}])
        reply = await session.call_model()
        await session.authorize(reply.tool_calls[0])
        log.faults = lambda *_: Fault.DELAY
        calling = asyncio.create_task(session.call_tool(reply.tool_calls[0]))
        done, _ = await asyncio.wait({calling}, timeout=0.3)
        seen.append(len(done) + sum(counted.asked.values()))
        log.faults = None
        log.release()
        await calling
    assert seen == [0]
    assert counted.made == {"c1": 1}


@pytest.mark.parametrize("effect", [Effect.OPAQUE, Effect.IDEMPOTENT, Effect.PROBE])
@pytest.mark.parametrize("how", ["time passes", "the wall clock is set back and time passes"])
async def test_a_call_is_not_started_after_its_deadline(
    effect: Effect, how: str, service: tuple[Ledger, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a process that stood still between read-back and send, the call is not made."""
    counted, url = service
    world = new_world(url)
    confirm = WriterPen.confirm

    async def slow(self: WriterPen, seq: int) -> None:
        await confirm(self, seq)
        world.clock.advance(TIMING.start_within_s)
        if "set back" in how:
            world.clock.jump_wall(-3600)

    monkeypatch.setattr(WriterPen, "confirm", slow)
    await world.run(script(effect))
    assert outcome(world) == (ResultStatus.EXPIRED, Settled.EXPIRED)
    assert counted.asked == {}


@pytest.mark.parametrize("effect", [Effect.OPAQUE, Effect.IDEMPOTENT, Effect.PROBE])
async def test_a_frozen_owner_that_wakes_after_a_takeover_makes_no_second_effect(
    effect: Effect, service: tuple[Ledger, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given an owner frozen between read-back and send, when another has settled the call, then it does nothing."""
    counted, url = service
    world, model = new_world(url), script(effect)
    confirm, frozen, thaw = WriterPen.confirm, asyncio.Event(), asyncio.Event()

    async def freezing(self: WriterPen, seq: int) -> None:
        await confirm(self, seq)
        if self.epoch == 1:
            frozen.set()
            await thaw.wait()

    monkeypatch.setattr(WriterPen, "confirm", freezing)
    async with world.process() as (log, producer), world.process() as (log_2, producer_2):

        async def owner() -> None:
            setup = world.setup(model)
            async with opened(producer, TRAJECTORY, log=log, setup=setup) as session:
                await built_in(setup)(session)

        first = asyncio.create_task(owner())
        await frozen.wait()
        world.clock.advance(PAST_GRACE_S)
        setup = world.setup(model)
        try:
            async with opened(producer_2, TRAJECTORY, log=log_2, setup=setup) as session:
                await built_in(setup)(session)
        except PersonNeeded:
            assert effect is Effect.OPAQUE
        thaw.set()
        with pytest.raises(Fenced):
            await first
    assert counted.made["c1"] == (1 if effect is Effect.IDEMPOTENT else 0)
    assert not [event for event in world.events() if event.problem]


async def test_an_opaque_call_is_escalated_only_when_its_effect_can_not_land_any_more(
    service: tuple[Ledger, str],
) -> None:
    _, url = service
    world = new_world(url)
    model = await killed_after_the_effect(world, "opaque")
    opening = asyncio.create_task(world.run(model))
    done, _ = await asyncio.wait({opening}, timeout=0.4)
    assert (done, world.bodies(Escalated)) == (set(), [])
    world.clock.advance(PAST_GRACE_S)
    with pytest.raises(PersonNeeded, match="c1"):
        await opening
    with pytest.raises(PersonNeeded):
        await world.run(model)
    assert len(world.bodies(Escalated)) == 1


async def test_a_wait_that_is_too_long_is_told_with_its_end(service: tuple[Ledger, str]) -> None:
    _, url = service
    world = new_world(url)
    model = await killed_after_the_effect(world, "opaque")
    for _ in range(2):
        with pytest.raises(StillInDoubt, match="settled from"):
            await world.run(model, timing=Timing(start_within_s=30.0, grace_s=70.0, settle_wait_s=5.0))
    assert len(world.bodies(InDoubt)) == 1
    world.clock.advance(PAST_GRACE_S)
    with pytest.raises(PersonNeeded):
        await world.run(model)


async def test_an_outage_longer_than_the_key_lives_makes_no_second_effect(service: tuple[Ledger, str]) -> None:
    """Given a tool that has forgotten the key, the call is not re-issued: a person is asked."""
    counted, url = service
    world = new_world(url)
    model = await killed_after_the_effect(world, "idempotent")
    counted.keys.clear()
    world.clock.advance(KEY_TTL_S + PAST_GRACE_S)
    with pytest.raises(PersonNeeded):
        await world.run(model)
    assert counted.made == {"c1": 1}


async def test_a_key_that_may_die_under_way_is_not_used_any_more(service: tuple[Ledger, str]) -> None:
    """Within the grace before the key's end a send might land too late; within the one after, it may still be on
    its way: neither re-issued nor escalated."""
    counted, url = service
    world = new_world(url)
    model = await killed_after_the_effect(world, "idempotent")
    world.clock.advance(KEY_TTL_S - TIMING.grace_s)
    with pytest.raises(StillInDoubt):
        await world.run(model, timing=Timing(start_within_s=30.0, grace_s=70.0, settle_wait_s=5.0))
    assert counted.asked == {"c1": 1}
    assert world.bodies(Escalated) == []


async def test_a_person_answers_only_what_was_asked(service: tuple[Ledger, str]) -> None:
    _, url = service
    world = new_world(url)
    model = await killed_after_the_effect(world, "opaque")
    answer = {"person": "ada", "happened": False, "output": "it did not happen"}
    async with world.process() as (log, _):
        with pytest.raises(InvalidEvent, match="nobody was asked"):
            await Answers(log).settle(TRAJECTORY, "c1", **answer)  # type: ignore[arg-type]
    world.clock.advance(PAST_GRACE_S)
    with pytest.raises(PersonNeeded):
        await world.run(model)
    async with world.process() as (log, _):
        await Answers(log).settle(TRAJECTORY, "c1", **answer)  # type: ignore[arg-type]
    await world.run(model)
    assert outcome(world) == (ResultStatus.EXPIRED, Settled.PERSON)
    assert len(world.bodies(TaskEnded)) == 1


async def test_a_changed_tool_does_not_settle_a_call_of_the_old_one(service: tuple[Ledger, str]) -> None:
    counted, url = service
    world = new_world(url)
    model = await killed_after_the_effect(world, "idempotent")

    @tool(name="idempotent", effect="idempotent", key_ttl_s=KEY_TTL_S)
    def other(what: str, currency: str) -> str:
        return make_effect(url, "c1", None)

    with pytest.raises(InvalidTool, match="another schema"):
        await world.run(model, tools=ToolSet.of(other), drift=Drift.CROSS)
    with pytest.raises(InvalidTool, match="not among the tools"):
        await world.run(model, tools=ToolSet.of(), drift=Drift.CROSS)
    assert counted.made == {"c1": 1}


def unknown_at_first(url: str, effect: str, answers: list[ProbeAnswer]) -> Tool:
    """Does its effect, then says that it does not know; the first time only."""
    calls: list[int] = []

    def probe(context: CallContext) -> Probed:
        return Probed(answers.pop(0), "as probed")

    @tool(name=effect, effect=effect, key_ttl_s=KEY_TTL_S, probe=probe if answers else None)
    def call(what: str, context: CallContext) -> str:
        calls.append(context.attempt)
        receipt = make_effect(url, context.call_id, context.idempotency_key)
        if len(calls) == 1:
            raise ToolOutcomeUnknown("the connection broke")
        return receipt

    return call


Expect = tuple[ResultStatus, Settled]
HAPPENED, ABSENT, UNKNOWN = ProbeAnswer.HAPPENED, ProbeAnswer.ABSENT, ProbeAnswer.UNKNOWN


@pytest.mark.parametrize(
    ("effect", "answers", "expected"),
    [
        ("readonly", [], (ResultStatus.UNKNOWN, Settled.DIRECT)),
        ("idempotent", [], (ResultStatus.OK, Settled.REISSUED)),
        ("probe", [HAPPENED], (ResultStatus.OK, Settled.PROBED)),
        ("probe", [UNKNOWN, ABSENT], (ResultStatus.EXPIRED, Settled.EXPIRED)),
        ("probe", [UNKNOWN, UNKNOWN, UNKNOWN], None),
        ("opaque", [], None),
    ],
)
async def test_an_attempt_that_ends_unknown_is_settled_at_once_by_its_class(
    effect: str, answers: list[ProbeAnswer], expected: Expect | None, service: tuple[Ledger, str]
) -> None:
    """Unknown is not failed: the model is not told `error`, after which it would do it again."""
    counted, url = service
    world = new_world(url)
    tools = ToolSet.of(unknown_at_first(url, effect, list(answers)))
    running = asyncio.create_task(world.run(script(effect), tools=tools))
    await until(lambda: bool(counted.made) or running.done())
    for _ in range(20):
        await asyncio.wait({running}, timeout=0.05)
        world.clock.advance(PAST_GRACE_S)
        if running.done():
            break
    if expected is None:
        with pytest.raises(PersonNeeded):
            await running
        assert len(world.bodies(Escalated)) == 1
    else:
        await running
        assert outcome(world) == expected
    assert counted.made == {"c1": 1}


async def until(there: Callable[[], bool]) -> None:
    """Waits for a condition, at most five seconds."""
    for _ in range(500):
        if there():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it did not come about within five seconds")


@pytest.mark.parametrize(
    ("changes", "says_what"),
    [
        ({"effect": "opaque", "timeout_s": 70.0}, "the grace is 70 s"),
        ({"effect": "idempotent", "key_ttl_s": 70.0}, "remembers keys for 70 s"),
    ],
)
async def test_a_tool_that_could_not_be_settled_is_refused_before_anything_happens(
    changes: Mapping[str, Any], says_what: str, service: tuple[Ledger, str]
) -> None:
    _, url = service
    world = new_world(url)

    @tool(name="slow", **changes)
    def slow(what: str) -> str:
        return what

    with pytest.raises(InvalidTool, match=says_what):
        await world.run(script(), tools=ToolSet.of(slow))
    with pytest.raises(InvalidTool, match=says_what):
        new_dispatcher(world, world.new_log(), dispatched(ToolSet.of(slow)), grace_s=70.0)


async def test_a_trajectory_of_another_driver_is_left_alone(service: tuple[Ledger, str]) -> None:
    _, url = service
    world = new_world(url)
    await world.run(script("readonly"))
    appended = len(world.events())
    with pytest.raises(InvalidEvent, match="driven by 'library'"):
        await world.run(script("readonly"), driver=Driver.WORKER)
    assert len(world.events()) == appended
