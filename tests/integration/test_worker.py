"""Workers run what is submitted: once, from where it was, and what cannot go on says so."""

from __future__ import annotations

import asyncio
import threading

import pytest

from tests.support.sessions import ScriptedModel, asks, says
from tests.support.working import Works, agent_of
from tracklog.producers.models import ModelAnswer, ModelRequest, OnToken
from tracklog.producers.tools import ToolSet, tool
from tracklog.schemas.errors import ModelUnavailable, NotDone, TaskFailed
from tracklog.schemas.events import InboxRefused, OwnershipClaimed
from tracklog.schemas.values import Driver, Ending


@pytest.fixture
def works() -> Works:
    return Works()


async def test_a_submitted_task_is_run_and_its_result_is_told(works: Works) -> None:
    trip = await works.client.submit("traveller", "book a trip", id="trip-1", labels={"team": "north"})
    async with works.worker(agent_of(ScriptedModel(says("done")))):
        result = await works.client.result(trip, wait_s=10)

    assert (result.ending, result.value) == (Ending.COMPLETED, "done")
    assert works.events(trip)[0].envelope.inbox_id is not None


async def test_a_task_that_comes_while_workers_run_is_taken_up(works: Works) -> None:
    async with works.worker(agent_of(ScriptedModel(says("done")))) as worker:
        await works.until(lambda: len(worker.partitions) == 2)
        ids = [await works.client.submit("traveller", f"trip {n}") for n in range(8)]
        results = await asyncio.gather(*(works.client.result(one, wait_s=10) for one in ids))

    assert {result.value for result in results} == {"done"}


async def test_a_task_submitted_twice_is_done_once_and_another_one_is_refused(works: Works) -> None:
    model = ScriptedModel(says("done"))
    for task in ("book a trip", "book a trip", "sell a house"):
        await works.client.submit("traveller", task, id="trip-1")
    async with works.worker(agent_of(model)):
        await works.client.result("trip-1", wait_s=10)
        await works.until(lambda: "InboxRefused" in works.names("trip-1"))

    assert model.asked == {0: 1}
    refused = [event.body for event in works.events("trip-1") if isinstance(event.body, InboxRefused)]
    assert [body.kind for body in refused] == ["Submit"]


async def test_a_task_for_an_unknown_agent_is_refused_by_name(works: Works) -> None:
    await works.client.submit("stranger", "book a trip", id="trip-1")
    async with works.worker(agent_of(ScriptedModel())):
        result = await works.client.result("trip-1", wait_s=10)

    assert result.ending is Ending.REFUSED
    with pytest.raises(TaskFailed, match="no worker has an agent 'stranger'"):
        _ = result.value


async def test_a_task_for_another_groups_agent_is_left_alone(works: Works) -> None:
    await works.client.submit("stranger", "book a trip", id="trip-1")
    await works.client.submit("traveller", "book a trip", id="trip-2")
    async with works.worker(agent_of(ScriptedModel(says("done"))), refuse_unknown=False):
        await works.client.result("trip-2", wait_s=10)

    assert works.names("trip-1") == []
    with pytest.raises(NotDone, match="no worker has begun"):
        await works.client.result("trip-1")


async def test_a_failed_run_says_why_and_goes_on_after_a_retry(works: Works) -> None:
    class Mending(ScriptedModel):
        broken = True

        async def reply(self, request: ModelRequest, *, on_token: OnToken | None = None) -> ModelAnswer:
            if self.broken:
                raise ModelUnavailable("nobody answers")
            return await super().reply(request, on_token=on_token)

    model = Mending(says("done"))
    await works.client.submit("traveller", "book a trip", id="trip-1")
    async with works.worker(agent_of(model), model_wait_s=0):
        await works.until(lambda: works.parked("trip-1") == "failed")
        with pytest.raises(NotDone, match="nobody answers"):
            await works.client.result("trip-1")
        model.broken = False
        await works.client.retry("trip-1", "it answers again")
        result = await works.client.result("trip-1", wait_s=10)

    assert result.value == "done"
    assert works.names("trip-1").count("TaskStarted") == 1


async def test_one_that_makes_the_same_call_again_and_again_is_stuck_and_may_be_let_go_on(works: Works) -> None:
    @tool(effect="readonly")
    def look(what: str) -> str:
        return "nothing"

    model = ScriptedModel(*(asks((f"c{n}", "look")) for n in range(5)), says("done"))
    await works.client.submit("traveller", "book a trip", id="trip-1")
    async with works.worker(agent_of(model, ToolSet.of(look)), repeats_max=3):
        await works.until(lambda: works.parked("trip-1") == "stuck")
        assert works.names("trip-1").count("ToolIntent") == 3
        await works.client.retry("trip-1")
        result = await works.client.result("trip-1", wait_s=10)

    assert result.value == "done"
    assert set(model.asked.values()) == {1}


async def test_one_that_kills_its_owners_is_stopped_as_poison(works: Works) -> None:
    await works.client.submit("traveller", "book a trip", id="trip-1")
    for _ in range(3):
        async with works.dying_owner("trip-1"):
            assert works.parked("trip-1") == ""
    async with works.worker(agent_of(ScriptedModel(says("done"))), tries_max=3):
        await works.until(lambda: works.parked("trip-1") == "poison")
        await works.client.retry("trip-1")
        result = await works.client.result("trip-1", wait_s=10)

    assert result.value == "done"


async def test_a_cancelled_run_ends_as_cancelled_with_its_call_settled(works: Works) -> None:
    started, may_end = threading.Event(), threading.Event()

    @tool(effect="opaque")
    def slow(what: str) -> str:
        started.set()
        may_end.wait(10)
        return "there"

    model = ScriptedModel(asks(("c1", "slow")), says("never asked for"))
    await works.client.submit("traveller", "book a trip", id="trip-1")
    async with works.worker(agent_of(model, ToolSet.of(slow))) as worker:
        await works.until(started.is_set)
        await works.client.cancel("trip-1", "not needed")
        await works.until(lambda: worker.has_mail("trip-1"))
        may_end.set()
        result = await works.client.result("trip-1", wait_s=10)

    assert result.ending is Ending.CANCELLED
    assert "not needed" in result.reason
    assert works.names("trip-1").count("ToolResult") == 1
    assert model.asked == {0: 1}


async def test_one_that_waits_for_a_message_takes_no_task_and_goes_on_when_it_comes(works: Works) -> None:
    model = ScriptedModel(says("which day?"), says("done"))
    await works.client.submit("traveller", "book a trip", id="trip-1")
    async with works.worker(agent_of(model, talks_until="STOP")) as worker:
        await works.until(lambda: works.parked("trip-1") == "message" and worker.running == 0)
        for text in ("monday", "monday", "tuesday"):  # sent again under its id it is the same message
            await works.client.send("trip-1", text, client_id="day")
        await works.until(lambda: model.asked[1] == 1 and works.parked("trip-1") == "message")
        await works.client.send("trip-1", "STOP")
        result = await works.client.result("trip-1", wait_s=10)

    assert result.ending is Ending.COMPLETED
    assert set(model.asked.values()) == {1}
    assert works.names("trip-1").count("MessageReceived") == 3  # the task, monday, STOP


async def test_a_worker_that_stops_moves_its_runs_and_the_next_one_goes_on(works: Works) -> None:
    started, may_end = threading.Event(), threading.Event()

    @tool(effect="opaque")
    def slow(what: str) -> str:
        started.set()
        may_end.wait(10)
        return "there"

    model = ScriptedModel(asks(("c1", "slow")), says("done"))
    await works.client.submit("traveller", "book a trip", id="trip-1")
    async with works.worker(agent_of(model, ToolSet.of(slow))):
        await works.until(started.is_set)
        may_end.set()
    first = works.names("trip-1")
    async with works.worker(agent_of(model, ToolSet.of(slow))):
        result = await works.client.result("trip-1", wait_s=10)

    assert result.value == "done"
    assert first[-1] == "OwnershipReleased"
    assert works.names("trip-1").count("ToolIntent") == 1
    assert set(model.asked.values()) == {1}


async def test_workers_leave_alone_what_other_programs_drive(works: Works) -> None:
    async with works.dying_owner("theirs", Driver.LIBRARY):
        pass
    await works.client.submit("traveller", "book a trip", id="ours")
    async with works.worker(agent_of(ScriptedModel(says("done")))):
        await works.client.result("ours", wait_s=10)

    drivers = [event.body.driver for event in works.events("theirs") if isinstance(event.body, OwnershipClaimed)]
    assert drivers == [Driver.LIBRARY]
