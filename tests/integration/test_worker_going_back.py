"""`retry --turn`: another trajectory goes on from a turn of a run; what the run did after it is not done again."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.sessions import World, asks, built_in, new_world, says
from tests.support.working import Works, agent_of
from tests.support.writing import read_accepted
from tracklog.producers.answers import Answers
from tracklog.producers.going_back import TAKEN_OVER, end_run
from tracklog.producers.lineage import read_inherited
from tracklog.producers.models import ModelAnswer, ModelRequest, OnToken
from tracklog.producers.replay import replay
from tracklog.producers.tools import ToolSet, tool
from tracklog.producers.turn import Agent
from tracklog.schemas.approvals import Approver
from tracklog.schemas.errors import InputError, InvalidEvent, ModelRefused, TrajectoryEnded
from tracklog.schemas.events import OwnershipClaimed, TaskEnded, ToolIntent, ToolResult
from tracklog.schemas.values import Choice, Driver, Ending, Settled

RIGHT, OTHER = '{"what":"it"}', '{"what":"other"}'


class Told:
    """A model that says what it is told to, by how many replies came before; what it is not told it refuses."""

    name = "told"

    def __init__(self, *answers: ModelAnswer) -> None:
        self.answers = dict(enumerate(answers))

    async def reply(self, request: ModelRequest, *, on_token: OnToken | None = None) -> ModelAnswer:
        answer = self.answers.get(request.replies_before or 0)
        if answer is None:
            raise ModelRefused("the key is not valid")
        return answer


class Tools:
    def __init__(self) -> None:
        self.made: list[str] = []
        self.looks = 0

        @tool(effect="opaque")
        def book(what: str) -> str:
            self.made.append(what)
            return f"booked {what}"

        @tool(effect="opaque")
        def fail(what: str) -> str:
            self.made.append(f"failing {what}")
            raise ValueError("not today")

        @tool(effect="readonly")
        def look(what: str) -> str:
            self.looks += 1
            return f"seen {what}"

        self.set = ToolSet.of(book, fail, look)


@pytest.fixture
def works() -> Works:
    return Works()


@pytest.fixture
def tools() -> Tools:
    return Tools()


async def stopped_run(works: Works, tools: Tools, trajectory_id: str = "trip-1") -> Told:
    """Given a run that looked in its first turn, booked in its second and failed a call, and was stopped later."""
    model = Told(
        asks(("c1", "look")),
        asks(("c2", "book"), ("c3", "fail"), ("c4", "look")),
        asks(("c5", "look"), arguments=OTHER),
    )
    await works.client.submit("traveller", "book a trip", id=trajectory_id)
    async with works.worker(agent_of_told(model, tools)):
        await works.until(lambda: works.parked(trajectory_id) == "failed")
    assert (tools.made, tools.looks) == (["it", "failing it"], 3)
    return model


def agent_of_told(model: Told, tools: Tools) -> Agent:
    agent: Agent = agent_of(model, tools.set)  # type: ignore[arg-type]
    return agent


def bodies(works: Works, trajectory_id: str, kind: type) -> list[Any]:
    return [event.body for event in works.events(trajectory_id) if isinstance(event.body, kind)]


async def test_the_run_ends_and_another_goes_on_from_the_turn_without_repeating_an_effect(
    works: Works, tools: Tools
) -> None:
    """The booking is given as it was; the call that failed did nothing, and the reading none: these are made."""
    model = await stopped_run(works, tools)
    model.answers[2] = says("done")
    new = await works.client.go_back("trip-1", 2, "the third turn was wrong")
    assert await works.client.go_back("trip-1", 2) == new
    async with works.worker(agent_of_told(model, tools)):
        result = await works.client.result(new, wait_s=10)
        ended = await works.client.result("trip-1", wait_s=10)

    assert result.value == "done"
    assert (ended.ending, new in ended.reason, "the third turn was wrong" in ended.reason) == (
        Ending.CANCELLED,
        True,
        True,
    )
    assert (tools.made, tools.looks) == (["it", "failing it", "failing it"], 4)
    settled = {body.call_id: body.settled for body in bodies(works, new, ToolResult)}
    assert settled == {"c2": Settled.RECORDED, "c3": Settled.DIRECT, "c4": Settled.DIRECT}
    assert await clean(works, new, agent_of_told(model, tools))


async def clean(works: Works, trajectory_id: str, agent: Agent) -> bool:
    events = works.events(trajectory_id)
    inherited = read_inherited(works.log, "tracklog.events", events)
    setup = agent.setup("book a trip", works.blobs)
    report = await replay(events, built_in(setup), setup=setup, inherited=inherited)
    return report.clean


@pytest.mark.parametrize(
    ("words", "made"),
    [
        ({"choice": Choice.APPROVE}, "other"),
        ({"choice": Choice.EDIT, "arguments": '{"what":"edited"}'}, "edited"),
    ],
)
async def test_another_call_of_a_tool_that_had_its_effect_waits_for_a_person(
    words: dict[str, Any], made: str, works: Works, tools: Tools
) -> None:
    model = await stopped_run(works, tools)
    model.answers = {0: model.answers[0], 1: asks(("c2", "book"), arguments=OTHER), 2: says("done")}
    new = await works.client.go_back("trip-1", 2)
    async with works.worker(agent_of_told(model, tools)):
        await works.until(lambda: works.parked(new) == "approval")
        assert tools.made == ["it", "failing it"]
        await Answers(works.log).answer(new, "c2", who=Approver("ada"), **words)
        result = await works.client.result(new, wait_s=10)

    assert result.value == "done"
    assert tools.made == ["it", "failing it", made]
    assert await clean(works, new, agent_of_told(model, tools))


async def test_going_back_again_knows_what_every_run_before_did(works: Works, tools: Tools) -> None:
    """Given a successor that was stopped too, after a booking of its own: its successor repeats neither booking."""
    model = await stopped_run(works, tools)
    model.answers = {0: model.answers[0], 1: asks(("c2", "book"), arguments=OTHER)}
    second = await works.client.go_back("trip-1", 2)
    async with works.worker(agent_of_told(model, tools)):
        await works.until(lambda: works.parked(second) == "approval")
        await Answers(works.log).answer(second, "c2", who=Approver("ada"), choice=Choice.APPROVE)
        await works.until(lambda: works.parked(second) == "failed")
    model.answers = {0: asks(("x1", "book")), 1: asks(("x2", "book"), arguments=OTHER), 2: says("done")}
    third = await works.client.go_back(second, 1)
    async with works.worker(agent_of_told(model, tools)):
        result = await works.client.result(third, wait_s=10)

    assert result.value == "done"
    assert third.count(".turn-") == 1
    assert tools.made == ["it", "failing it", "other"]
    assert {body.settled for body in bodies(works, third, ToolResult)} == {Settled.RECORDED}


async def test_what_cannot_be_gone_back_from_is_said(works: Works, tools: Tools) -> None:
    model = await stopped_run(works, tools)
    with pytest.raises(InputError, match="turns of this trajectory are 1 to 4"):
        await works.client.go_back("trip-1", 9)
    with pytest.raises(InputError, match="no trajectory 'absent'"):
        await works.client.go_back("absent", 1)
    new = await works.client.go_back("trip-1", 2)
    model.answers = {0: says("done"), 1: says("done")}
    async with works.worker(agent_of_told(model, tools)):
        await works.client.result(new, wait_s=10)
    with pytest.raises(InvalidEvent, match=f"was taken over: {new} goes on"):
        await works.client.go_back("trip-1", 1)
    with pytest.raises(TrajectoryEnded, match="has ended: completed"):
        await works.client.go_back(new, 1)


async def test_of_two_that_would_take_over_a_run_one_goes_on(works: Works, tools: Tools) -> None:
    """Both were asked for before any worker looked; the other one is refused, and says by whom it was taken over."""
    model = await stopped_run(works, tools)
    model.answers[2] = says("done")
    ids = [await works.client.go_back("trip-1", turn) for turn in (2, 3)]
    async with works.worker(agent_of_told(model, tools)):
        results = [await works.client.result(one, wait_s=10) for one in ids]

    (over,) = [one for one in results if one.ending is not Ending.COMPLETED]
    (done,) = [one for one in results if one.ending is Ending.COMPLETED]
    assert (over.ending, done.trajectory_id in over.reason) == (Ending.REFUSED, True)


async def test_a_worker_killed_while_it_ends_a_run_is_followed_by_one_that_does_it_once() -> None:
    for at in range(12):
        world = new_world("")
        with pytest.raises(ModelRefused):
            await world.run(Told(asks(("c1", "readonly"))), driver=Driver.WORKER)  # type: ignore[arg-type]

        async def end(world: World = world) -> None:
            async with world.process() as (log, producer):
                said = await end_run(producer, log, "tracklog.events", "trip-1", "new-1", "why", owner="worker")
                assert said == ""

        world.die_at_append = at
        died = await world.until_dead(end())
        world.die_at_append = None
        await end()
        async with world.process() as (log, producer):
            other = await end_run(producer, log, "tracklog.events", "trip-1", "new-2", "", owner="worker")
        assert "taken over: new-1 goes on (why)" in other
        assert len(world.bodies(TaskEnded)) == 1
        marks = [body for body in world.bodies(OwnershipClaimed) if body.reason.startswith(TAKEN_OVER)]
        assert marks[0].reason == "taken over: new-1 goes on (why)"
        if not died:
            return
    raise AssertionError("it never came to its end")


async def test_a_run_with_a_call_that_may_have_happened_is_not_taken_over() -> None:
    world = new_world("")
    world.die_at_point = "before the effect"
    assert await world.crash(Told(asks(("c1", "opaque")), says("done")), driver=Driver.WORKER)  # type: ignore[arg-type]
    world.die_at_point = None
    async with world.process() as (log, producer):
        said = await end_run(producer, log, "tracklog.events", "trip-1", "new-1", "", owner="worker")

    assert "call 'c1' of 'trip-1' may have happened" in said
    assert len(world.bodies(ToolIntent)) == 1
    assert not world.bodies(TaskEnded)
    assert read_accepted(world.new_log(), "trip-1")[-1].envelope.ext["parked"] == "doubt"
