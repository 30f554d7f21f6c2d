"""A run that was stopped has a way out, whatever stopped it; and no way in which a worker turns round and round."""

from __future__ import annotations

import pytest

from tests.support.sessions import ScriptedModel, asks, says
from tests.support.working import Works, agent_of
from tracklog.infra.blobs import open_blobs
from tracklog.producers.models import ModelAnswer, ModelRequest, OnToken
from tracklog.producers.tools import ToolSet, tool
from tracklog.producers.turn import Agent
from tracklog.producers.versions import Drift
from tracklog.schemas.errors import ModelRefused
from tracklog.schemas.events import DriftCrossed, InboxRefused
from tracklog.schemas.values import Ending


@pytest.fixture
def works() -> Works:
    return Works()


class Refusing(ScriptedModel):
    """Answers once, then its key is not valid any more."""

    async def reply(self, request: ModelRequest, *, on_token: OnToken | None = None) -> ModelAnswer:
        if request.replies_before == 1:
            raise ModelRefused("the key is not valid")
        return await super().reply(request, on_token=on_token)


@tool(effect="readonly")
def look(what: str) -> str:
    return f"found {what}"


def failing(**parts: object) -> Agent:
    return agent_of(Refusing(asks(("c1", "look"))), ToolSet.of(look), **parts)


async def failed(works: Works, trajectory_id: str = "trip-1") -> None:
    """Given a run that was stopped in its second turn."""
    await works.client.submit("traveller", "book a trip", id=trajectory_id)
    async with works.worker(failing()):
        await works.until(lambda: works.parked(trajectory_id) == "failed")


async def test_one_whose_program_does_not_fit_its_record_can_be_cancelled(works: Works) -> None:
    await failed(works)
    await works.client.retry("trip-1")
    async with works.worker(failing(turns_max=1)):  # the record has a second turn, which was not finished
        await works.until(lambda: works.parked("trip-1") == "diverged")
        await works.client.cancel("trip-1", "not needed")
        result = await works.client.result("trip-1", wait_s=10)

    assert (result.ending, "not needed" in result.reason) == (Ending.CANCELLED, True)


async def test_one_whose_agent_is_gone_waits_for_it_and_can_be_cancelled(works: Works) -> None:
    await failed(works)
    await works.client.retry("trip-1")
    async with works.worker(Agent("clerk", ScriptedModel(says("done")))):
        await works.until(lambda: "no worker has an agent" in reason(works))
        claims = works.names("trip-1").count("OwnershipClaimed")
        await works.client.submit("clerk", "tidy up", id="other")
        await works.client.result("other", wait_s=10)
        assert works.names("trip-1").count("OwnershipClaimed") == claims  # it was let go of, and not taken again
        await works.client.cancel("trip-1")
        result = await works.client.result("trip-1", wait_s=10)

    assert result.ending is Ending.CANCELLED
    assert not [event for event in works.events("trip-1") if isinstance(event.body, InboxRefused)]


def reason(works: Works) -> str:
    last = works.events("trip-1")[-1].body
    return getattr(last, "reason", "")


async def test_one_whose_task_is_lost_is_stopped_with_the_reason_each_time_it_is_let_go_on(works: Works) -> None:
    await works.client.submit("traveller", "book a trip " * 100_000, id="trip-1")
    works.blobs = open_blobs("memory://")
    async with works.worker(agent_of(ScriptedModel(says("done")))):
        await works.until(lambda: works.parked("trip-1") == "failed")
        assert "blob" in reason(works)
        await works.client.retry("trip-1")
        await works.until(lambda: works.names("trip-1").count("OwnershipReleased") == 2)
        assert (works.parked("trip-1"), "blob" in reason(works)) == ("failed", True)
        await works.client.submit("traveller", "small", id="other")
        await works.client.result("other", wait_s=10)

    assert works.names("trip-1").count("OwnershipClaimed") == 2  # nobody takes it again and again


@pytest.mark.parametrize("drift", [None, *Drift])
async def test_a_run_that_was_left_with_another_prompt_goes_on_as_the_worker_was_told(
    drift: Drift | None, works: Works
) -> None:
    await failed(works)
    await works.client.retry("trip-1")
    model = ScriptedModel(says("never asked for"), says("done"))
    agent = Agent("traveller", model, ToolSet.of(look), prompt="be brief")
    async with works.worker(agent, drift=drift):
        if drift is Drift.REFUSE:
            await works.until(lambda: works.parked("trip-1") == "drift")
            return
        assert (await works.client.result("trip-1", wait_s=10)).value == "done"

    crossed = [event.body for event in works.events("trip-1") if isinstance(event.body, DriftCrossed)]
    assert len(crossed) == (0 if drift is Drift.PIN else 1)
