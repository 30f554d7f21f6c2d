"""What is wrong from outside, and how it ends: a model's endpoint, ids, a log that is not whole, a workspace, names."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.support import tampering
from tests.support.chains import Made, append_all
from tests.support.openai_server import Endpoint, openai_server
from tests.support.openai_server import says as answers
from tests.support.sessions import ScriptedModel, asks, new_world, says
from tests.support.working import Works, agent_of
from tests.support.writing import read_accepted
from tracklog.infra.log.port import Record
from tracklog.producers.history import read_history
from tracklog.producers.tools import ToolSet, tool
from tracklog.producers.turn import Agent
from tracklog.schemas.errors import TrajectoryFaulty, WorkspaceError
from tracklog.schemas.events import ModelReplied, OwnershipClaimed, OwnershipReleased, ToolResult
from tracklog.schemas.lifecycle import EXT_PARKED

openai = pytest.importorskip("openai", reason="the openai SDK is not installed: pip install 'tracklog[openai]'")

from tracklog.producers.model_openai import OpenAIModel  # noqa: E402 - only with its SDK


@pytest.fixture
def works() -> Works:
    return Works()


def traveller(endpoint: Endpoint) -> Agent:
    client = openai.AsyncOpenAI(base_url=endpoint.url, api_key="key")
    return Agent("traveller", OpenAIModel(client, "m", retries=1, backoff_s=0.0), ToolSet.of())


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("429", "in 2 tries"),
        ("500", "in 2 tries"),
        ("cut", "in 2 tries"),
        ("malformed", "JSON"),
        ("too long", "at most"),
    ],
)
async def test_a_run_whose_model_fails_is_stopped_with_the_reason_and_goes_on_when_it_is_well(
    fault: str, said: str, works: Works
) -> None:
    await works.client.submit("traveller", "book a trip", id="trip-1")
    with openai_server(answers("done"), faults=[fault] * 2) as endpoint:
        async with works.worker(traveller(endpoint), model_wait_s=0):
            await works.until(lambda: works.parked("trip-1") == "failed")
            endpoint.faults.clear()
            assert said in reason(works)
            await works.client.retry("trip-1")
            result = await works.client.result("trip-1", wait_s=10)

    assert result.value == "done"
    assert sum(isinstance(event.body, ModelReplied) for event in works.events("trip-1")) == 1


async def test_a_run_whose_model_is_not_there_is_stopped_with_the_address(works: Works) -> None:
    with openai_server(answers("done")) as endpoint:
        agent = traveller(endpoint)
    await works.client.submit("traveller", "book a trip", id="trip-1")
    async with works.worker(agent, model_wait_s=0):
        await works.until(lambda: works.parked("trip-1") == "failed")
    assert endpoint.url in reason(works)


def reason(works: Works) -> str:
    last = [event.body for event in works.events("trip-1") if isinstance(event.body, OwnershipReleased)][-1]
    return last.reason


async def test_calls_with_one_id_are_each_made_once_under_ids_of_their_own(works: Works) -> None:
    """Given an id twice in a reply, and the same again a turn later."""
    seen: list[str] = []

    @tool(effect="opaque")
    def book(what: str) -> str:
        seen.append(what)
        return f"booked {what}"

    twice = asks(("c1", "book"), ("c1", "book"))
    await works.client.submit("traveller", "book a trip", id="trip-1")
    async with works.worker(agent_of(ScriptedModel(twice, asks(("c1", "book")), says("done")), ToolSet.of(book))):
        assert (await works.client.result("trip-1", wait_s=10)).value == "done"

    results = [event.body.call_id for event in works.events("trip-1") if isinstance(event.body, ToolResult)]
    assert (len(seen), sorted(results)) == (3, ["c1", "c1~2", "c1~3"])


async def waiting_run() -> tuple[Works, list[Made]]:
    """Given a run that waits for a message, and its records."""
    works = Works()
    await works.client.submit("traveller", "book a trip", id="trip-1")
    async with works.worker(agent_of(ScriptedModel(says("which day?")), talks_until="STOP")):
        await works.until(lambda: works.parked("trip-1") == "message")
    return works, [made(one) for one in read_accepted(works.log, "trip-1", raw=True)]


async def test_a_log_with_a_fork_stops_its_own_run_and_nobody_elses(works: Works) -> None:
    """Another event with the number of an earlier one stands behind all, by whoever owned the run then and died."""
    good, (*records, _) = await waiting_run()
    at = len(records) - 3
    append_all(works.log, "tracklog.events", [*records, tampering.inserted(records, at)[at]])
    works.blobs = good.blobs
    before = len(read_accepted(works.log, "trip-1", raw=True))

    async with works.worker(agent_of(ScriptedModel(says("done")))) as worker:
        await works.client.submit("traveller", "book a trip", id="trip-2")
        assert (await works.client.result("trip-2", wait_s=10)).value == "done"
        await works.until(lambda: worker.running == 0)
        assert worker.roster.work_of("trip-1") is None  # it is not looked at again and again

    asking: list[Callable[[], Awaitable[object]]] = [
        lambda: works.client.retry("trip-1"),
        lambda: works.client.cancel("trip-1"),
        lambda: works.client.send("trip-1", "monday"),
    ]
    for ask in asking:
        with pytest.raises(TrajectoryFaulty, match=f"event {at} is stale"):
            await ask()
    assert len(read_accepted(works.log, "trip-1", raw=True)) == before


async def test_behind_a_gap_nothing_is_accepted_and_the_run_goes_on_from_before_it(works: Works) -> None:
    """To a reader it is a tail that was never acknowledged; that it was one, only `tracklog verify` can prove."""
    good, records = await waiting_run()
    append_all(works.log, "tracklog.events", tampering.dropped(records, len(records) - 3))
    works.blobs = good.blobs

    async with works.worker(agent_of(ScriptedModel(says("done")))):
        assert (await works.client.result("trip-1", wait_s=10)).value == "done"

    state, accepted = read_history(works.log, "tracklog.events", "trip-1")
    assert (state.harmless["gap"], state.faults) == (2, 0)
    assert [event.envelope.seq for event, _ in accepted] == list(range(len(accepted)))
    assert state.head.epoch == 2


def made(record: Record) -> Made:
    return Made(record.key or b"", record.value or b"", record.headers, b"")


async def test_a_workspace_that_cannot_be_written_is_said_and_the_run_goes_on_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no directory")
    world, model = new_world(""), ScriptedModel(says("done"))

    with pytest.raises(WorkspaceError, match="cannot write workspace"):
        await world.run(model, workspace=tmp_path / "file" / "work")
    (released,) = [event for event in world.events() if isinstance(event.body, OwnershipReleased)]
    assert released.envelope.ext[EXT_PARKED] == "failed"

    await world.run(model, workspace=tmp_path / "work")
    assert world.events()[-2].name == "TaskEnded"


async def test_two_workers_of_one_name_are_two_and_share_the_work(works: Works) -> None:
    model = ScriptedModel(says("done"))
    async with works.worker(agent_of(model)) as one, works.worker(agent_of(model)) as other:
        await works.until(lambda: one.partitions | other.partitions == {0, 1} and len(one.partitions) == 1)
        ids = [await works.client.submit("traveller", "book a trip", id=f"trip-{n}") for n in range(6)]
        assert {(await works.client.result(each, wait_s=10)).value for each in ids} == {"done"}

    for each in ids:
        claims = [event.body for event in works.events(each) if isinstance(event.body, OwnershipClaimed)]
        assert [body.owner for body in claims] == ["worker-1"]
