"""What clients record is theirs alone: no worker goes on with it, no dispatcher performs its calls."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.dispatching import dispatched, dispatching, new_dispatcher
from tests.support.ledger import ledger
from tests.support.recording import RUN, Given, call_of, replica, said, start
from tests.support.sessions import TRAJECTORY, ScriptedModel, World, asks, new_world, says
from tests.support.working import Works, agent_of
from tests.support.writing import read_accepted
from tracklog.infra.clock import SystemClock
from tracklog.infra.log.partitioner import partition_of

PARTITIONS = 2
CALL = {**call_of("c1"), "function": {"name": "opaque", "arguments": '{"what":"it"}'}}
OPEN_CALL: list[Given] = [
    said(),
    {"type": "ContextBuilt"},
    {"type": "ModelReplied", "reply": {"role": "assistant", "content": None, "tool_calls": [CALL]}},
    {"type": "Authorized", "call_id": "c1", "ruling": "allow"},
    {"type": "ToolIntent", "call_id": "c1", "tool": "opaque", "arguments": {"what": "it"}, "effect": "opaque"},
]
"""A run whose client has gone while it made a call."""


@pytest.fixture
def world() -> Any:
    with ledger() as (_, url):
        world = new_world(url)
        world.log_clock = SystemClock()
        yield world


async def test_no_dispatcher_performs_a_recorded_call(world: World) -> None:
    # given an open recorded call of a tool that the dispatcher has
    async with replica(world) as one:
        await one.start(start())
        await one.append(1, OPEN_CALL)
    before = read_accepted(world.new_log(), RUN)
    # when it performs a later call of the same partition
    assert partition_of(RUN.encode(), PARTITIONS) == partition_of(TRAJECTORY.encode(), PARTITIONS)
    tools = dispatched(world.tools())
    async with dispatching(new_dispatcher(world, world.new_log(), tools)):
        model = ScriptedModel(asks(("call-1", "opaque")), says("done"))
        await world.run(model, tools=tools, clock=SystemClock())
    # then that one alone was made
    assert world.ran == {"call-1": 1}
    assert read_accepted(world.new_log(), RUN) == before


async def test_no_worker_goes_on_with_a_recorded_run_and_none_takes_its_id() -> None:
    works = Works()
    # given a run whose client has gone, and a task under the same id
    async with replica(works) as one:
        await one.start(start())
        await one.append(1, OPEN_CALL)
    before = works.events(RUN)
    for trajectory_id in (RUN, TRAJECTORY):
        await works.client.submit("traveller", "book a trip", id=trajectory_id)
    # when a worker does a later task of the same partition
    async with works.worker(agent_of(ScriptedModel(says("done")))):
        assert (await works.client.result(TRAJECTORY, wait_s=10)).value == "done"
    # then it has left the recorded one alone
    assert works.events(RUN) == before
