"""Many runs that are held for a person and answered together (10,000: `python -m benchmarks held`)."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest

from tests.support.dispatching import dispatching, new_dispatcher
from tests.support.sessions import ScriptedModel, asks, says
from tests.support.working import BOUND_S, Works, agent_of
from tracklog.producers import spans, view
from tracklog.producers.answers import Answers
from tracklog.producers.policy_file import PolicyFile
from tracklog.producers.tools import CallContext, ToolSet, tool
from tracklog.schemas.approvals import Approver
from tracklog.schemas.topics import Topics
from tracklog.schemas.values import Choice, Ending

RUNS: Final = 40
MONEY: Final = b"""
default = "allow"

[[rules]]
name = "money"
when = "tool == 'pay'"
then = "hold"
"""


async def test_held_runs_that_are_answered_together_all_end_and_each_reads_its_own_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # given many runs that a worker has left, each held for a person
    works, made = Works(), Counter[str]()

    @tool(effect="readonly")
    def pay(what: str, context: CallContext) -> str:
        made[context.trajectory_id] += 1
        return "paid"

    policy = PolicyFile(b'default = "hold"\n', "held.toml")
    agent = agent_of(ScriptedModel(asks(("call-1", "pay")), says("done")), ToolSet.of(pay), policy=policy)
    runs = [await works.client.submit("traveller", "pay", id=f"trip-{number}") for number in range(RUNS)]
    async with works.worker(agent):
        await works.until(lambda: all(works.parked(one) == "approval" for one in runs))
    # when another worker has taken over, and all are answered at once
    monkeypatch.setattr(spans, "JOINED_WITHIN", 1)
    read: list[int] = []
    ranged: Any = view.read_range  # type: ignore[attr-defined]

    def counted(*arguments: Any, **options: Any) -> Any:
        for record in ranged(*arguments, **options):
            read.append(record.offset)
            yield record

    monkeypatch.setattr(view, "read_range", counted)
    answers = Answers(works.log, Topics())
    async with works.worker(agent) as worker:
        await works.until(lambda: len(worker.roster) == RUNS)
        assert worker.running == worker.roster.backlog == 0
        await asyncio.gather(
            *(answers.answer(one, "call-1", who=Approver("ada"), choice=Choice.APPROVE) for one in runs)
        )
        results = await asyncio.gather(*(works.client.result(one, wait_s=20) for one in runs))
    # then each has ended, each call was made once, and nobody read the records of all
    assert {result.ending for result in results} == {Ending.COMPLETED}
    assert made == dict.fromkeys(runs, 1)
    records = sum(len(works.events(one)) for one in runs)
    assert len(read) <= records


@asynccontextmanager
async def held_beside_dispatched(works: Works) -> AsyncIterator[threading.Event]:
    """A worker in a turn with a held call, and beside it one that a dispatcher ends when it may."""
    may_end = threading.Event()

    @tool(effect="opaque", run="inline")
    def pay(what: str) -> str:
        return "paid"

    @tool(effect="readonly", run="dispatch")
    def look(what: str) -> str:
        may_end.wait(BOUND_S)
        return "seen"

    model, tools = ScriptedModel(asks(("call-1", "pay"), ("call-2", "look")), says("done")), ToolSet.of(pay, look)
    await works.client.submit("traveller", "pay", id="trip-1")
    async with (
        works.worker(agent_of(model, tools, policy=PolicyFile(MONEY, "money.toml"))),
        dispatching(new_dispatcher(works, works.new_log(), tools)),
    ):
        await works.until(lambda: {"ApprovalRequested", "ToolIntent"} <= {*works.names("trip-1")})
        yield may_end


async def test_a_decision_that_came_while_another_call_was_waited_for_is_not_waited_for_again() -> None:
    works = Works()
    async with held_beside_dispatched(works) as may_end:
        # given that the decision comes first, and then the outcome
        await Answers(works.log, Topics()).answer("trip-1", "call-1", who=Approver("ada"), choice=Choice.APPROVE)
        await works.until(lambda: "ApprovalResolved" in works.names("trip-1"))
        may_end.set()
        result = await works.client.result("trip-1", wait_s=BOUND_S)
    # then it goes on, though nothing more has come that could wake it
    assert result.ending is Ending.COMPLETED
    assert works.names("trip-1").count("ToolResult") == 2
    assert "approval" not in {event.envelope.ext.get("parked") for event in works.events("trip-1")}


async def test_a_cancel_that_came_while_another_call_was_waited_for_is_obeyed() -> None:
    works = Works()
    async with held_beside_dispatched(works) as may_end:
        # given that a cancel comes first, and then the outcome
        await works.client.cancel("trip-1", "not needed")
        await works.until(lambda: "CancelRequested" in works.names("trip-1"))
        may_end.set()
        result = await works.client.result("trip-1", wait_s=BOUND_S)
    # then it ends, though nothing more has come that could wake it
    assert result.ending is Ending.CANCELLED
