"""Rules, budgets and held calls of a session: recorded once, the same when resumed and replayed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.support.ledger import Ledger, effects_of, ledger
from tests.support.sessions import TRAJECTORY, ScriptedModel, World, asks, built_in, new_world, says
from tracklog.producers.answers import Answers
from tracklog.producers.approvals import EXPIRY
from tracklog.producers.models import ModelAnswer
from tracklog.producers.policy_file import PolicyFile
from tracklog.producers.replay import replay
from tracklog.schemas import events as ev
from tracklog.schemas.approvals import Approver
from tracklog.schemas.errors import ApprovalNeeded, InvalidEvent
from tracklog.schemas.fold import fold_all
from tracklog.schemas.lifecycle import Parked
from tracklog.schemas.state import State
from tracklog.schemas.values import Budgets, Choice, Ending, ResultStatus, Ruling, Settled, Usage

HELD = """
default = "allow"

[[rules]]
name = "bookings"
when = "effect == 'opaque'"
then = "hold"
may_approve = ["ada"]
expires_in_s = 60
reason = "they cost money"
"""


@pytest.fixture
def service() -> Iterator[tuple[Ledger, str]]:
    with ledger() as running:
        yield running


def policy(text: str) -> PolicyFile:
    return PolicyFile(text.encode(), "policy.toml")


def limits(**budgets: int) -> PolicyFile:
    lines = "\n".join(f"{name} = {limit}" for name, limit in budgets.items())
    return policy(f'default = "allow"\n[budgets]\n{lines}\n')


def model() -> ScriptedModel:
    return ScriptedModel(asks(("c1", "opaque"), ("c2", "readonly")), says("done"))


def spending(answer: ModelAnswer, tokens: int) -> ModelAnswer:
    return replace(answer, usage=Usage(input_tokens=tokens))


async def clean(world: World, rules: PolicyFile) -> bool:
    setup = world.setup(ScriptedModel(), policy=rules)
    report = await replay(world.events(), built_in(setup), setup=setup)
    return report.clean


async def decide(world: World, *, person: str, **words: Any) -> None:
    log = world.new_log()
    await Answers(log, clock=world.clock).answer(TRAJECTORY, "c1", who=Approver(person), **words)
    log.close()


async def held(url: str) -> World:
    world = new_world(url)
    with pytest.raises(ApprovalNeeded, match="'bookings") as raised:
        await world.run(model(), policy=policy(HELD))
    assert "tracklog approvals approve trip-1 c1" in raised.value.hint
    return world


async def test_a_held_call_waits_and_is_made_once_when_it_was_approved(service: tuple[Ledger, str]) -> None:
    _, url = service
    world = await held(url)
    assert fold_all(State(TRAJECTORY), world.events()).parked == Parked.APPROVAL
    assert effects_of(url, "c1") == 0

    with pytest.raises(ApprovalNeeded):  # nobody has decided
        await world.run(ScriptedModel(), policy=policy(HELD))
    await decide(world, person="ada", choice=Choice.APPROVE)
    await world.run(model(), policy=policy(HELD))

    assert effects_of(url, "c1") == 1
    (request,) = world.bodies(ev.ApprovalRequested)
    assert (request.may_approve, request.reason) == (("ada",), "they cost money")
    (resolved,) = world.bodies(ev.ApprovalResolved)
    intent = next(body for body in world.bodies(ev.ToolIntent) if body.call_id == "c1")
    assert intent.request_hash == resolved.request_hash
    assert world.bodies(ev.TaskEnded)
    assert fold_all(State(TRAJECTORY), world.events()).irregular == 0
    assert await clean(world, policy(HELD))


@pytest.mark.parametrize(
    ("words", "status", "settled", "output"),
    [
        (
            {"choice": Choice.DENY, "reason": "too dear"},
            ResultStatus.DENIED,
            Settled.DIRECT,
            "refused: by ada: too dear",
        ),
        ({"choice": Choice.ANSWER, "answer": "booked by hand"}, ResultStatus.OK, Settled.PERSON, "booked by hand"),
    ],
)
async def test_a_held_call_that_is_refused_or_answered_is_not_made(
    words: dict[str, Any], status: ResultStatus, settled: Settled, output: str, service: tuple[Ledger, str]
) -> None:
    _, url = service
    world = await held(url)

    await decide(world, person="ada", **words)
    await world.run(model(), policy=policy(HELD))

    result = next(body for body in world.bodies(ev.ToolResult) if body.call_id == "c1")
    assert (result.status, result.settled, result.output.text) == (status, settled, output)
    assert effects_of(url, "c1") == 0
    assert await clean(world, policy(HELD))


async def test_who_may_not_decide_is_told_and_the_first_decision_counts(service: tuple[Ledger, str]) -> None:
    _, url = service
    world = await held(url)

    with pytest.raises(InvalidEvent, match="'eve' may not decide"):
        await decide(world, person="eve", choice=Choice.APPROVE)
    await decide(world, person="ada", choice=Choice.DENY)
    await decide(world, person="ada", choice=Choice.APPROVE)  # in the inbox behind the first, and refused there
    await world.run(model(), policy=policy(HELD))

    assert [body.choice for body in world.bodies(ev.ApprovalResolved)] == [Choice.DENY]
    (refused,) = world.bodies(ev.InboxRefused)
    assert refused.kind == "Decision"
    assert effects_of(url, "c1") == 0


async def test_a_request_that_nobody_decided_in_time_is_refused(service: tuple[Ledger, str]) -> None:
    _, url = service
    world = await held(url)
    world.clock.advance(61.0)

    with pytest.raises(InvalidEvent, match="has expired"):
        await decide(world, person="ada", choice=Choice.APPROVE)
    await world.run(model(), policy=policy(HELD))

    (resolved,) = world.bodies(ev.ApprovalResolved)
    assert (resolved.choice, resolved.approver) == (Choice.EXPIRE, EXPIRY)
    assert effects_of(url, "c1") == 0
    assert await clean(world, policy(HELD))


async def test_a_decision_of_before_the_expiry_that_is_taken_after_it_counts(service: tuple[Ledger, str]) -> None:
    _, url = service
    world = await held(url)
    await decide(world, person="ada", choice=Choice.APPROVE)
    world.clock.advance(61.0)

    await world.run(model(), policy=policy(HELD))

    assert [body.choice for body in world.bodies(ev.ApprovalResolved)] == [Choice.APPROVE]
    assert effects_of(url, "c1") == 1


async def test_a_held_run_killed_at_any_append_asks_once_and_acts_once(service: tuple[Ledger, str]) -> None:
    _, url = service
    for at in range(40):
        world = new_world(url)
        made_before = effects_of(url, "c1")
        world.die_at_append = at
        died = await crashed_or_held(world)
        world.die_at_append = None
        with pytest.raises(ApprovalNeeded):
            await world.run(model(), policy=policy(HELD))
        await decide(world, person="ada", choice=Choice.APPROVE)
        await world.run(model(), policy=policy(HELD))
        assert len(world.bodies(ev.ApprovalRequested)) == 1
        assert effects_of(url, "c1") == made_before + 1
        if not died:
            return
    raise AssertionError("the run never came to its hold")


async def crashed_or_held(world: World) -> bool:
    try:
        return await world.crash(model(), policy=policy(HELD))
    except ApprovalNeeded:
        return False


async def test_every_ruling_carries_its_rule_and_what_is_left(service: tuple[Ledger, str]) -> None:
    _, url = service
    world, rules = new_world(url), limits(turns=5, tool_calls=2, tokens=100)
    first = spending(asks(("c1", "readonly"), ("c2", "readonly"), ("c3", "readonly")), 30)

    await world.run(ScriptedModel(first, says("done")), policy=rules)

    one, two, three = world.bodies(ev.Authorized)
    assert (one.rule, one.policy_version) == ("default", rules.version)
    assert one.budget_remaining == Budgets(turns=4, tool_calls=1, tokens=70)
    assert (two.ruling, two.budget_remaining.tool_calls) == (Ruling.ALLOW, 0)
    assert (three.ruling, three.rule) == (Ruling.DENY, "budget tool_calls is used up: 2 of 2")
    (started,) = world.bodies(ev.TaskStarted)
    assert started.budgets == rules.budgets
    assert await clean(world, rules)


@pytest.mark.parametrize(("budget", "limit"), [("turns", 1), ("tokens", 30)])
async def test_a_run_without_budget_for_a_turn_ends_as_failed_with_the_reason(
    budget: str, limit: int, service: tuple[Ledger, str]
) -> None:
    _, url = service
    world, rules = new_world(url), limits(**{budget: limit})
    script = ScriptedModel(spending(asks(("c1", "readonly")), 30), says("never asked"))

    await world.run(script, policy=rules)

    (ended,) = world.bodies(ev.TaskEnded)
    assert (ended.ending, ended.reason) == (Ending.FAILED, f"budget {budget} is used up: {limit} of {limit}")
    assert script.asked == {0: 1}
    assert await clean(world, rules)


async def test_time_counts_while_a_process_works_and_is_replayed_as_it_was(service: tuple[Ledger, str]) -> None:
    _, url = service
    world, rules = new_world(url), limits(wall_ms=90_000)

    async def slow(session: Any, *, cut: bool) -> None:
        agent_turns = [60.0, 0.0, 40.0]
        messages: list[Any] = [{"role": "user", "content": "go"}]
        for number, pause_s in enumerate(agent_turns):
            await session.build_context(messages)
            reply = await session.call_model()
            if session.live:
                world.clock.advance(pause_s)
            messages += [reply.message, *[(await session.call_tool(call)).message for call in reply.tool_calls]]
            if cut and number == 1:
                raise ConnectionError("the process goes away")
        await session.end("over")

    script = ScriptedModel(*(asks((f"c{n}", "readonly")) for n in range(3)))
    with pytest.raises(ConnectionError):
        await world.run(script, lambda session: slow(session, cut=True), policy=rules)
    world.clock.advance(86_400.0)  # nobody works on it: that is not counted
    await world.run(script, lambda session: slow(session, cut=False), policy=rules)

    rulings = world.bodies(ev.Authorized)
    assert [body.ruling for body in rulings] == [Ruling.ALLOW, Ruling.ALLOW, Ruling.DENY]
    assert [body.budget_remaining.wall_ms for body in rulings] == [30_000, 30_000, 0]
    setup = world.setup(ScriptedModel(), policy=rules)
    assert (await replay(world.events(), lambda session: slow(session, cut=False), setup=setup)).clean
