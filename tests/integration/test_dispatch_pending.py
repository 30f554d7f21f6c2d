"""Tools that answer by themselves, days later, over the API: once, twice, otherwise, after a cancel, too late."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.dispatching import dispatching, new_dispatcher
from tests.support.serving import BODY_MAX, Api, serving
from tests.support.sessions import TRAJECTORY, ScriptedModel, asks, says
from tracklog.consumers.dispatch import dispatcher as dispatcher_module
from tracklog.consumers.refusals import Reason, refusals
from tracklog.producers.client import Client
from tracklog.producers.settle import Timing
from tracklog.producers.tools import ToolSet, tool
from tracklog.schemas import events as ev
from tracklog.schemas.errors import Cancelled, OutcomeAwaited, PersonNeeded, ToolPending
from tracklog.schemas.topics import Topics
from tracklog.schemas.values import Ending, ResultStatus

DAY_S: Final = 86_400.0
WITHIN_S: Final = 3 * DAY_S
TOPICS: Final = Topics()
PATH: Final = f"/trajectories/{TRAJECTORY}/outcomes"


@tool(effect="opaque", run="dispatch")
def render(what: str) -> str:
    raise ToolPending("the job has begun", within_s=WITHIN_S)


CHANGES: Final[dict[str, Any]] = {
    "tools": ToolSet.of(render),
    "timing": Timing(grace_s=70.0, outcome_wait_s=0.0, dispatch_within_s=3600.0),
}


@pytest.fixture
def api(redis_db: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    monkeypatch.setattr(dispatcher_module, "WAIT_STEP_S", 0.05)
    with serving(redis_db, tmp_path) as served:
        served.world.log_clock = served.world.clock
        yield served


async def _open(api: Api) -> None:
    """The session, once: it is left when there is nothing for it."""
    await api.world.run(ScriptedModel(asks(("job-1", "render")), says("done")), **CHANGES)


async def _begun(api: Api) -> None:
    """A job that was begun by a dispatcher, which is gone now; its answer is awaited by nobody in memory."""
    with pytest.raises(OutcomeAwaited):
        await _open(api)
    log = api.world.new_log()
    ends = [log.bounds(TOPICS.attempts, one).end for one in range(2)]
    async with dispatching(new_dispatcher(api.world, api.world.new_log(), CHANGES["tools"], clock=api.world.clock)):
        async with asyncio.timeout(20.0):
            while sum(log.bounds(TOPICS.attempts, one).end for one in range(2)) < sum(ends) + 2:  # noqa: ASYNC110
                await asyncio.sleep(0.02)  # Attempt and Pending
    api.fold()


def _report(api: Api, output: str = "the film", status: str = "ok") -> tuple[int, Any]:
    return api.ask("POST", PATH, {"call_id": "job-1", "status": status, "output": output})


async def _goes_on(api: Api) -> None:
    """It is opened again, with a dispatcher beside it that could do something wrong."""
    async with dispatching(new_dispatcher(api.world, api.world.new_log(), CHANGES["tools"], clock=api.world.clock)):
        await _open(api)
    api.fold()


def _results(api: Api) -> list[tuple[ResultStatus, str]]:
    return [(one.status, one.output.text) for one in api.world.bodies(ev.ToolResult)]


async def test_an_outcome_that_comes_days_later_is_taken_once_however_often_it_is_said(api: Api) -> None:
    # given a job under way for two days
    await _begun(api)
    api.world.clock.advance(2 * DAY_S)
    # when it reports twice, and then something else
    assert [_report(api)[0] for _ in range(2)] == [202, 202]
    assert _report(api, "another film")[0] == 202
    assert _report(api, "it failed", "error")[0] == 202
    await _goes_on(api)
    # then the first counts, the same again is nothing, and each other one is told as altered
    assert _results(api) == [(ResultStatus.OK, "the film")]
    told = list(refusals(api.world.new_log(), TOPICS))
    assert [(one.reason, one.call_id) for one in told] == [(Reason.ALTERED, "job-1")] * 2
    # and whoever reports now hears that nobody waits
    status, said = _report(api)
    assert (status, "the trajectory has ended" in said["error"]) == (409, True)


async def test_a_job_that_is_cancelled_is_waited_for_and_then_the_run_ends_as_cancelled(api: Api) -> None:
    # given a job under way, and a cancel
    await _begun(api)
    await Client(api.world.new_log(), TOPICS, clock=api.world.clock).cancel(TRAJECTORY, "too dear")
    with pytest.raises((Cancelled, OutcomeAwaited)):
        await _goes_on(api)
    assert not api.world.bodies(ev.TaskEnded)
    # when it reports
    api.world.clock.advance(DAY_S)
    assert _report(api)[0] == 202
    with pytest.raises(Cancelled):
        await _goes_on(api)
    # then its outcome is in the record, and the run has ended
    assert _results(api) == [(ResultStatus.OK, "the film")]
    assert [one.ending for one in api.world.bodies(ev.TaskEnded)] == [Ending.CANCELLED]


async def test_a_job_that_does_not_report_in_time_is_asked_about_and_may_still_report(api: Api) -> None:
    # given a job whose time, and the grace, are over
    await _begun(api)
    api.world.clock.advance(WITHIN_S + DAY_S)
    with pytest.raises((PersonNeeded, OutcomeAwaited)):
        await _goes_on(api)
    async with dispatching(new_dispatcher(api.world, api.world.new_log(), CHANGES["tools"], clock=api.world.clock)):
        async with asyncio.timeout(20.0):
            while not api.world.bodies(ev.Escalated):
                with pytest.raises((PersonNeeded, OutcomeAwaited)):
                    await _open(api)
    assert [one.call_id for one in api.world.bodies(ev.Escalated)] == ["job-1"]
    # when it reports before anybody has looked
    assert _report(api, "late, but there")[0] == 202
    await _goes_on(api)
    # then that is its result
    assert _results(api) == [(ResultStatus.OK, "late, but there")]


async def test_what_makes_no_sense_is_refused_at_the_door(api: Api) -> None:
    await _begun(api)
    outcome = {"call_id": "job-1", "status": "ok", "output": "x"}

    status, said = api.ask("POST", "/trajectories/nobody/outcomes", outcome)
    assert (status, said["error"]) == (404, "there is no trajectory 'nobody'")
    status, said = api.ask("POST", PATH, {**outcome, "call_id": "job-2"})
    assert (status, "nobody waits for the outcome of call 'job-2'" in said["error"]) == (409, True)
    status, said = api.ask("POST", PATH, {**outcome, "output": "x" * BODY_MAX})
    assert (status, said["error"]) == (413, f"the request has more than {BODY_MAX} bytes")
    assert api.ask("POST", PATH, {**outcome, "status": "perhaps"})[0] == 422
    assert api.ask("POST", PATH, {**outcome, "attempt": 3})[0] == 422


async def test_an_outcome_is_taken_although_the_views_are_behind(api: Api) -> None:
    # given a job, begun since the views were folded last
    api.fold()
    with pytest.raises(OutcomeAwaited):
        await _open(api)
    # when it reports at once
    assert _report(api)[0] == 202
    # then that is its result
    await _open(api)
    assert _results(api) == [(ResultStatus.OK, "the film")]
