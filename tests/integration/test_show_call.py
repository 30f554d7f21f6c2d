"""One call, from all topics: what was said of it, which slots were taken, what became of each answer."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.test_session_fork import FORK, Other, origin_of, run_fork
from tests.integration.test_session_inbox import post
from tests.integration.test_session_policy import HELD, decide, held, model, policy
from tests.support.dispatching import dispatched, dispatching, new_dispatcher
from tests.support.ledger import Ledger, ledger
from tests.support.sessions import TRAJECTORY, ScriptedModel, World, asks, new_world, says
from tracklog.consumers.call_story import CallStory, call_story
from tracklog.consumers.cli.show_call import story_map
from tracklog.infra.clock import SystemClock
from tracklog.infra.log.ranges import append_and_wait
from tracklog.schemas import events as ev
from tracklog.schemas.codec import encode_record
from tracklog.schemas.envelope import LedgerEnvelope
from tracklog.schemas.errors import InputError
from tracklog.schemas.inbox import Annotation, Decision, Outcome
from tracklog.schemas.ledger import Attempt, Done, LedgerBody
from tracklog.schemas.topics import Topics
from tracklog.schemas.values import Body, Choice, ResultStatus, Settled, TargetKind

TOPICS = Topics()


@pytest.fixture
def service() -> Iterator[tuple[Ledger, str]]:
    with ledger() as running:
        yield running


def story(world: World, call_id: str, trajectory_id: str = TRAJECTORY) -> CallStory:
    return call_story(world.new_log(), TOPICS, trajectory_id, call_id)


def told(found: CallStory) -> list[tuple[str, str]]:
    """(type, verdict) of each record."""
    return [(one.read.name, one.verdict) for one in found.chapters]


def enter(world: World, intent_hash: bytes, slot: int, process: str, body: LedgerBody) -> None:
    envelope = LedgerEnvelope(
        trajectory_id=TRAJECTORY,
        tenant="default",
        call_id="c1",
        intent_hash=intent_hash,
        slot=slot,
        nonce=hashlib.sha256(process.encode()).digest()[:16],
        recorded_at=1,
    )
    made, log = encode_record(envelope, body), world.new_log()
    append_and_wait(log, TOPICS.attempts, TRAJECTORY.encode(), made.value, made.headers, timeout_s=5)


async def test_a_held_call_is_told_with_its_decision_and_the_one_that_came_too_late(
    service: tuple[Ledger, str],
) -> None:
    """Given two decisions, the second one sent twice, and a word about the call after its end."""
    world = await held(service[1])
    (request,) = [event for event in world.events() if isinstance(event.body, ev.ApprovalRequested)]
    await decide(world, person="ada", choice=Choice.APPROVE)
    late = Decision(call_id="c1", request_hash=request.hash, approver="ada", choice=Choice.DENY, reason="no")
    for _ in range(2):
        await post(world, late, 7, source="phone")
    await world.run(model(), policy=policy(HELD))
    note = Annotation(target=TargetKind.CALL, call_id="c1", name="good", value=Body.of("yes"), source="ada")
    await post(world, note, 0, source="notes")

    found = story(world, "c1")

    resolved, refused = (
        next(e.envelope.seq for e in world.events() if isinstance(e.body, kind))
        for kind in (ev.ApprovalResolved, ev.InboxRefused)
    )
    first = next(one for one in found.chapters if one.read.name == "Decision")
    assert told(found) == [
        ("ModelReplied", ""),
        ("Authorized", ""),
        ("ApprovalRequested", ""),
        ("Decision", f"taken by event {resolved}"),
        ("Decision", f"refused by event {refused}"),
        ("Decision", f"the same as at offset {first.record.offset + 1}"),
        ("ApprovalResolved", ""),
        ("InboxRefused", ""),
        ("ToolIntent", ""),
        ("ToolResult", ""),
        ("Annotation", "not taken yet"),
    ]
    shown = json.loads(json.dumps(story_map(found), default=str))["records"]
    assert {one["topic"] for one in shown} == {TOPICS.events, TOPICS.inbox}
    assert all(one["offset"] >= 0 for one in shown)


async def test_every_entry_of_the_ledger_says_which_slot_it_took(service: tuple[Ledger, str]) -> None:
    """Given two dispatchers that bid for one slot, the winner's outcome, and a bid after it."""
    world = new_world(service[1])
    world.die_at_point = "after the effect"
    assert await world.crash(ScriptedModel(asks(("c1", "opaque"), ("c2", "readonly")), says("done")))
    intents = {e.body.call_id: e.hash for e in world.events() if isinstance(e.body, ev.ToolIntent)}
    bid = Attempt(dispatcher="one", not_after=5)
    enter(world, intents["c1"], 1, "one", bid)
    enter(world, intents["c1"], 1, "one", bid)
    enter(world, intents["c1"], 1, "two", Attempt(dispatcher="two", not_after=5))
    enter(world, intents["c1"], 3, "two", Attempt(dispatcher="two", not_after=5))
    outcome = Outcome(
        call_id="c1",
        intent_hash=intents["c1"],
        slot=1,
        status=ResultStatus.OK,
        output=Body.of("paid"),
        settled=Settled.DIRECT,
    )
    await post(world, outcome, 0, source="one")
    enter(world, intents["c1"], 1, "one", Done(dispatcher="one", status=ResultStatus.OK))
    enter(world, intents["c1"], 2, "two", Attempt(dispatcher="two", not_after=5))

    found = story(world, "c1")

    entries = [(one.read.name, one.verdict) for one in found.chapters if one.record.topic == TOPICS.attempts]
    assert entries == [
        ("Attempt", "takes slot 1"),
        ("Attempt", "again"),
        ("Attempt", "too late: slot 1 is taken"),
        ("Attempt", "out of turn"),
        ("Done", ""),
        ("Attempt", "too late: the call is done"),
    ]
    assert ("Outcome", "not taken yet") in told(found)
    assert [name for name, _ in told(found)][:3] == ["ModelReplied", "Authorized", "ToolIntent"]


async def test_a_dispatched_call_is_told_from_the_reply_to_the_result(service: tuple[Ledger, str]) -> None:
    world = new_world(service[1])
    world.log_clock = SystemClock()
    tools = dispatched(world.tools())
    async with dispatching(new_dispatcher(world, world.new_log(), tools)):
        await world.run(
            ScriptedModel(asks(("c1", "opaque"), ("c2", "idempotent")), says("done")), tools=tools, clock=SystemClock()
        )

    found = story(world, "c1")

    results = [event for event in world.events() if isinstance(event.body, ev.ToolResult)]
    (result,) = (event.envelope.seq for event in results if getattr(event.body, "call_id", "") == "c1")
    assert sorted(told(found)) == sorted(
        [
            ("ModelReplied", ""),
            ("Authorized", ""),
            ("ToolIntent", ""),
            ("Attempt", "takes slot 1"),
            ("Outcome", f"taken by event {result}"),
            ("Done", ""),
            ("ToolResult", ""),
        ]
    )
    names = [name for name, _ in told(found)]
    assert names[:4] == ["ModelReplied", "Authorized", "ToolIntent", "Attempt"]


async def test_a_call_is_found_by_its_end_and_in_the_origin_of_a_fork(service: tuple[Ledger, str]) -> None:
    """Given calls c1 and c2 in the inherited turn of a fork, c3 and c4 in the origin after it."""
    world = await origin_of(service[1])
    await run_fork(world, Other())

    assert story(world, "…2").call_id == "c2"
    assert story(world, "c1", FORK).trajectory_id == TRAJECTORY
    assert story(world, "d1", FORK).trajectory_id == FORK
    for call_id, trajectory_id, said in (
        ("c3", FORK, "it has d1, d2, c1, c2"),
        ("nope", TRAJECTORY, "it has c1, c2, c3, c4"),
    ):
        with pytest.raises(InputError, match="has no call") as error:
            story(world, call_id, trajectory_id)
        assert error.value.hint == said
    with pytest.raises(InputError, match="no trajectory 'nobody'"):
        story(world, "c1", "nobody")
    other: Any = ScriptedModel(asks(("a-7", "readonly"), ("b-7", "readonly")), says("done"))
    ambiguous = new_world("")
    await ambiguous.run(other)
    with pytest.raises(InputError, match="2 calls of trajectory 'trip-1' end with '7'"):
        story(ambiguous, "7")
