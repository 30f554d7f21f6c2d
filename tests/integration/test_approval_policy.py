"""Who may decide about held calls, judged by whoever takes the decision; and who is asked when nobody has answered."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.sessions import TRAJECTORY, ScriptedModel, World, asks, built_in, new_world, says
from tests.support.working import Works
from tracklog.infra.clock import SystemClock
from tracklog.producers.answers import Answers
from tracklog.producers.approvals import EXPIRY
from tracklog.producers.policy_file import PolicyFile
from tracklog.producers.post import Poster
from tracklog.producers.replay import replay
from tracklog.producers.turn import Agent
from tracklog.schemas import events as ev
from tracklog.schemas import inbox
from tracklog.schemas.approvals import Approver
from tracklog.schemas.errors import ApprovalNeeded, InvalidEvent, NotApprover
from tracklog.schemas.fold import fold_all
from tracklog.schemas.state import State
from tracklog.schemas.topics import Topics
from tracklog.schemas.values import Choice, InboxId, OnExpiry, ResultStatus

RULES = PolicyFile(
    b"""
default = "hold"

[[rules]]
name = "bookings"
then = "hold"
may_approve = ["ada", "role:manager"]
expires_in_s = 60
then_ask = [{ may_approve = ["role:director"], expires_in_s = 30 }, { may_approve = ["eve"], expires_in_s = 10 }]
""",
    "policy.toml",
)
ADA, BOB, EVE, MANAGER = Approver("ada"), Approver("bob"), Approver("eve"), Approver("mo", frozenset(("manager",)))
DIRECTOR = Approver("di", frozenset(("director", "manager")))


def model() -> ScriptedModel:
    return ScriptedModel(asks(("c1", "readonly")), says("done"))


async def held(**setup: Any) -> World:
    world = new_world("http://127.0.0.1:1")
    await goes_on_waiting(world, **setup)
    return world


async def goes_on_waiting(world: World, **setup: Any) -> None:
    with pytest.raises(ApprovalNeeded):
        await world.run(model(), policy=RULES, **setup)


async def answer(world: World, who: Approver, choice: Choice = Choice.APPROVE, **words: Any) -> None:
    log = world.new_log()
    await Answers(log, clock=world.clock).answer(TRAJECTORY, "c1", who=who, choice=choice, **words)
    log.close()


async def post(world: World, request_hash: bytes, who: Approver, choice: Choice, number: int = 0) -> None:
    """Past `Answers`, as anything that reaches the inbox may."""
    log = world.new_log()
    body = inbox.Decision(call_id="c1", request_hash=request_hash, approver=who.name, choice=choice)
    poster = Poster(log, Topics(), clock=SystemClock())
    await poster.post(TRAJECTORY, body, inbox_id=InboxId(source=f"{who.name}/{number}", seq=0), ext=who.ext)
    log.close()


def open_request(world: World) -> bytes:
    call = fold_all(State(TRAJECTORY), world.events()).calls["c1"]
    assert call.request is not None
    return call.request.hash


def asked_of(world: World) -> list[tuple[str, ...]]:
    return [body.may_approve for body in world.bodies(ev.ApprovalRequested)]


def resolved_by(world: World) -> list[tuple[str, Choice]]:
    return [(body.approver, body.choice) for body in world.bodies(ev.ApprovalResolved)]


def refused(world: World) -> list[str]:
    return [body.reason for body in world.bodies(ev.InboxRefused)]


async def clean(world: World, **setup: Any) -> bool:
    own = world.setup(model(), policy=RULES, **setup)
    return (await replay(world.events(), built_in(own), setup=own)).clean


async def test_a_role_decides_and_what_the_credential_said_is_recorded() -> None:
    world = await held()

    await answer(world, MANAGER)
    await world.run(model(), policy=RULES)

    (event,) = [event for event in world.events() if event.name == "ApprovalResolved"]
    assert (resolved_by(world), event.envelope.ext["roles"]) == ([("mo", Choice.APPROVE)], '["manager"]')
    assert [body.status for body in world.bodies(ev.ToolResult)] == [ResultStatus.OK]
    assert await clean(world)


@pytest.mark.parametrize("who", [BOB, Approver("manager"), Approver("mo", frozenset(("clerk",)))])
async def test_who_may_not_is_told_and_past_that_refused_by_the_taker(who: Approver) -> None:
    world = await held()

    with pytest.raises(NotApprover, match="may not decide about call 'c1'") as raised:
        await answer(world, who)
    assert "ada or the role manager" in raised.value.hint
    await post(world, open_request(world), who, Choice.APPROVE)
    await goes_on_waiting(world)

    assert (resolved_by(world), len(refused(world))) == ([], 1)
    assert f"{who.name} may not decide" in refused(world)[0]


async def test_the_requester_may_not_decide_and_another_tenant_neither() -> None:
    world = await held(on_behalf_of="ada")
    stranger = Approver("ed", frozenset(("manager",)), frozenset(("other",)))

    with pytest.raises(NotApprover, match="ada asked for this work"):
        await answer(world, ADA)
    with pytest.raises(NotApprover, match="ed is not of tenant default"):
        await answer(world, stranger)
    await post(world, open_request(world), ADA, Choice.APPROVE)
    await post(world, open_request(world), stranger, Choice.APPROVE)
    await goes_on_waiting(world, on_behalf_of="somebody else")  # what was recorded counts

    assert resolved_by(world) == []
    assert ["ada asked" in refused(world)[0], "not of tenant" in refused(world)[1]] == [True, True]


async def test_an_editor_satisfies_the_rule_by_the_role_that_was_recorded_also_in_a_replay() -> None:
    world = await held()

    await answer(world, MANAGER, Choice.EDIT, arguments='{"what":"less"}')
    await world.run(model(), policy=RULES)

    assert [body.arguments.text for body in world.bodies(ev.ToolIntent)] == ['{"what":"less"}']
    assert len(asked_of(world)) == 1
    assert await clean(world)


async def test_each_step_is_asked_in_turn_for_its_own_time_and_the_last_ends_as_refused() -> None:
    world, due = await held(), [60, 30, 10]
    began_us = world.clock.now_us()
    for wait_s in due:
        assert refused(world) == []
        world.clock.advance(wait_s)
        if wait_s != due[-1]:
            await goes_on_waiting(world)
    await world.run(model(), policy=RULES)

    requests = world.bodies(ev.ApprovalRequested)
    assert asked_of(world) == [("ada", "role:manager"), ("role:director",), ("eve",)]
    assert [(one.expires_at - began_us) // 1_000_000 for one in requests] == [60, 90, 100]
    assert [one.on_expiry for one in requests] == [OnExpiry.ESCALATE, OnExpiry.ESCALATE, OnExpiry.DENY]
    assert len({one.argument_hash for one in requests}) == 1
    assert resolved_by(world) == [(EXPIRY, Choice.EXPIRE)]
    assert fold_all(State(TRAJECTORY), world.events()).irregular == 0
    assert await clean(world)


async def test_after_an_escalation_those_before_are_late_and_the_next_ones_decide() -> None:
    world = await held()
    first = open_request(world)
    world.clock.advance(60)
    with pytest.raises(InvalidEvent, match="has expired") as late:
        await answer(world, ADA)
    assert "then asks the role director" in late.value.hint
    await goes_on_waiting(world)

    with pytest.raises(InvalidEvent, match="another request about call 'c1'"):
        await answer(world, DIRECTOR, request_hash=first)
    await post(world, first, ADA, Choice.APPROVE)
    with pytest.raises(NotApprover):
        await answer(world, ADA)
    await answer(world, DIRECTOR, Choice.DENY, reason="no", request_hash=open_request(world))
    await world.run(model(), policy=RULES)

    assert resolved_by(world) == [("di", Choice.DENY)]
    assert "another request" in refused(world)[0]
    assert await clean(world)


async def test_an_expiry_that_is_said_twice_escalates_once() -> None:
    """By two routers, and by the session itself: the first one counts, the others are refused in the record."""
    world = await held()
    first = open_request(world)
    for number in range(2):
        await post(world, first, Approver(EXPIRY), Choice.EXPIRE, number)
    world.clock.advance(60)
    await goes_on_waiting(world)

    assert asked_of(world) == [("ada", "role:manager"), ("role:director",)]
    assert len(refused(world)) == 1


async def test_killed_at_any_append_it_escalates_once_and_asks_nobody_twice() -> None:
    for at in range(40):
        world = await held()
        await post(world, open_request(world), Approver(EXPIRY), Choice.EXPIRE)
        world.die_at_append = at
        try:
            died = await world.crash(model(), policy=RULES)
        except ApprovalNeeded:
            died = False
        world.die_at_append = None
        await goes_on_waiting(world)
        assert asked_of(world) == [("ada", "role:manager"), ("role:director",)], at
        await answer(world, DIRECTOR)
        await world.run(model(), policy=RULES)
        assert resolved_by(world) == [("di", Choice.APPROVE)], at
        assert await clean(world), at
        if not died:
            return
    raise AssertionError("the run never came to its hold")


async def test_a_worker_asks_the_next_ones_and_goes_on_when_they_have_decided() -> None:
    """Said by a router while the run costs nobody a task."""
    works, tools = Works(), new_world("").tools()
    agent = Agent("traveller", model(), tools, policy=RULES)
    name = await works.client.submit("traveller", "a trip", id="trip-1", on_behalf_of="di")
    async with works.worker(agent):
        await works.until(lambda: works.parked(name) == "approval")
        await say_expired(works, name)
        await works.until(lambda: works.names(name).count("ApprovalRequested") == 2)
        await works.until(lambda: works.parked(name) == "approval")
        people = Answers(works.log)
        with pytest.raises(NotApprover, match="di asked for this work"):
            await people.answer(name, "c1", who=DIRECTOR, choice=Choice.APPROVE)
        await people.answer(name, "c1", who=DIRECTOR._replace(name="dora"), choice=Choice.APPROVE)
        assert (await works.client.result(name, wait_s=20)).value == "done"


async def say_expired(works: Works, name: str) -> None:
    request = next(event for event in works.events(name) if event.name == "ApprovalRequested")
    body = inbox.Decision(call_id="c1", request_hash=request.hash, approver=EXPIRY, choice=Choice.EXPIRE)
    inbox_id = InboxId(source="expiry/0", seq=request.envelope.seq)
    await Poster(works.log, Topics(), clock=SystemClock()).post(name, body, inbox_id=inbox_id)
