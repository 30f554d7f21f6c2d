"""A swarm runs again over its records in one order; the first divergence of all is named."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from tests.support.routing import routing
from tests.support.sessions import ScriptedModel, asks, says
from tests.support.working import Works
from tracklog.consumers.swarm.members import histories_of
from tracklog.consumers.swarm.order import misfits, place_of, total_order
from tracklog.consumers.swarm.replaying import SwarmReport, replay_swarm
from tracklog.infra.redis_client import RedisClient, connect
from tracklog.producers.session import Session
from tracklog.producers.tools import ToolSet, tool
from tracklog.producers.turn import Agent
from tracklog.schemas.codec import Event
from tracklog.schemas.events import MessageSent
from tracklog.schemas.values import Body


@pytest.fixture
def client(redis_db: str) -> Iterator[RedisClient]:
    client = connect(redis_db, timeout_s=5.0)
    yield client
    client.close()


async def planner(session: Session, task: str) -> Any:
    asker = await session.spawn("asker", f"{session.trajectory_id}.child-2")
    teller = await session.spawn("teller", asker)
    await session.sleep(0.05)
    return [(await session.child_result(one)).value for one in (teller, asker)]


async def asker(session: Session, task: str) -> Any:
    await session.send(task, f"what is {await session.random()}?")
    return (await session.receive(task))["content"]


async def teller(session: Session, task: str) -> str:
    question = str((await session.receive(task))["content"])
    await session.send(task, f"no idea {question}")
    return "told"


@tool(effect="readonly")
def look(what: str) -> str:
    return f"saw {what}"


def looker() -> Agent:
    """Two calls side by side."""
    model = ScriptedModel(asks(("c-1", "look"), ("c-2", "look")), says("done"))
    return Agent("looker", model, ToolSet.of(look))


def agents(**changed: Any) -> dict[str, Agent]:
    programs = {"planner": planner, "asker": asker, "teller": teller, **changed}
    found = {name: Agent(name, None, program=program) for name, program in programs.items()}
    return {**found, "looker": looker()}


Histories = Mapping[str, Sequence[Event]]


@pytest.fixture
async def swarm(client: RedisClient) -> tuple[Works, Histories]:
    """What three programs and an agent beside them of the same swarm left."""
    works = Works()
    await works.client.submit("planner", "go", id="p-1")
    await works.client.submit("looker", "look", id="look-1", swarm="p-1")
    async with routing(works.new_log(), client), works.worker(*agents().values()):
        await asyncio.gather(*(works.client.result(one, wait_s=15) for one in ("p-1", "look-1")))
    _, found = histories_of(works.log, "tracklog.events", "look-1")
    return works, {one: [event for event, _ in accepted] for one, (_, accepted) in found.items()}


async def replayed(swarm: tuple[Works, Histories], given: dict[str, Agent]) -> tuple[SwarmReport, list[Event]]:
    works, histories = swarm
    passed = list[Event]()
    report = await replay_swarm(histories, {}, given, works.blobs, passed.append, 30.0)
    return report, passed


async def test_all_run_again_in_the_one_order(swarm: tuple[Works, Histories]) -> None:
    assert sorted(swarm[1]) == ["look-1", "p-1", "p-1.child-1", "p-1.child-2"]
    report, passed = await replayed(swarm, agents())
    assert (report.clean, report.first, report.misfits) == (True, None, ())
    assert {one.ended for one in report.reports.values()} == {True}
    # every event passed once, and after its causes
    order = total_order(swarm[1].values())
    assert [place_of(event) for event in passed] == [place_of(event) for event in order]
    at = {place_of(event): n for n, event in enumerate(passed)}
    for event in passed:
        assert all(at[ref.trajectory_id, ref.seq] < at[place_of(event)] for ref in event.envelope.causes)


async def test_the_first_divergence_is_the_one_that_comes_first_in_the_order(swarm: tuple[Works, Histories]) -> None:
    async def shy(session: Session, task: str) -> str:
        await session.receive(task)
        await session.send(task, "something else")
        return "told"

    async def lazy(session: Session, task: str) -> Any:
        await session.send(task, f"what is {await session.random()}?")
        await session.receive(task)
        return "another answer"

    report, _ = await replayed(swarm, agents(teller=shy, asker=lazy))
    # both diverge, the teller before the asker has its answer
    assert [one for one, own in report.reports.items() if not own.clean] == ["p-1.child-1", "p-1.child-2"]
    assert report.first == "p-1.child-2"
    found = report.reports["p-1.child-2"].divergence
    assert found is not None
    assert "another message" in found.asked


async def test_an_event_that_is_never_asked_for_is_found_and_holds_up_nobody(swarm: tuple[Works, Histories]) -> None:
    async def hasty(session: Session, task: str) -> Any:
        return "at once"

    report, passed = await replayed(swarm, agents(asker=hasty))
    assert (report.first, len(passed)) == ("p-1.child-1", report.events)


async def test_what_was_heard_and_not_sent_is_a_misfit(swarm: tuple[Works, Histories]) -> None:
    order = total_order(swarm[1].values())
    at = next(n for n, event in enumerate(order) if event.name == "MessageSent" and "child" not in event.envelope.ext)
    sent = order[at].body
    assert isinstance(sent, MessageSent)
    altered = order[at]._replace(body=sent.model_copy(update={"message": Body.of("forged")}))
    (found,) = misfits([*order[:at], altered, *order[at + 1 :]])
    assert found.what.endswith("sent another message")
    late = order[at].envelope.model_copy(update={"lamport": 10_000})
    moved = total_order([[*order[:at], order[at]._replace(envelope=late), *order[at + 1 :]]])
    assert any("comes later" in one.what for one in misfits(moved))
