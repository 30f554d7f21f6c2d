"""`tracklog swarm` over runs that wait for each other, from Redis and from the log alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.routing import routing
from tests.support.working import Works
from tracklog.consumers.read import Reader
from tracklog.consumers.swarm.members import members_in_redis, swarm_in_log
from tracklog.consumers.swarm.showing import swarm_map, verdicts
from tracklog.consumers.swarm.waits import swarm_of
from tracklog.infra.clock import SystemClock, SystemEntropy
from tracklog.infra.redis_client import RedisClient, connect
from tracklog.infra.settings import LogSettings, Settings
from tracklog.processors.running import trajectories
from tracklog.producers.session import Session
from tracklog.producers.turn import Agent
from tracklog.schemas.errors import InputError
from tracklog.schemas.topics import Topics


@pytest.fixture
def works() -> Works:
    return Works()


@pytest.fixture
def client(redis_db: str) -> Iterator[RedisClient]:
    client = connect(redis_db, timeout_s=5.0)
    yield client
    client.close()


async def parent(session: Session, task: str) -> Any:
    child = await session.spawn("child", session.trajectory_id)
    return (await session.child_result(child)).value


async def child(session: Session, task: str) -> Any:
    return (await session.receive(task))["content"]


async def test_a_circle_is_named_and_a_message_ends_it(works: Works, client: RedisClient) -> None:
    agents = [Agent("parent", None, program=parent), Agent("child", None, program=child)]
    # given a child that waits for the word of its parent, which waits for the child's end
    await works.client.submit("parent", "go", id="p-1")
    async with routing(works.new_log(), client), works.worker(*agents):
        await works.until(lambda: works.parked("p-1.child-1") == "message" and works.parked("p-1") == "child")
        found = swarm_in_log(works.log, Topics(), "p-1.child-1")
        # then both views say so, asked for by any member
        assert (found.name, found.deadlocks) == ("p-1", (("p-1", "p-1.child-1"),))
        assert next(iter(verdicts(found))).startswith("deadlock: p-1, p-1.child-1 wait for each other")
        settings = Settings(log=LogSettings(url="memory:"))
        view = trajectories(works.log, client, settings, clock=SystemClock(), entropy=SystemEntropy())
        view.loop.drain()
        reader = Reader(client, prefix="tracklog")
        for member in ("p-1", "p-1.child-1"):
            name, states, _ = await members_in_redis(reader, member)
            assert swarm_map(swarm_of(name, states)) == swarm_map(found)
        # when somebody ends the wait in the parent's place
        await works.client.cancel("p-1.child-1")
        await works.until(lambda: works.parked("p-1") == "failed")
    assert swarm_in_log(works.log, Topics(), "p-1").sound


async def test_what_nobody_has_taken_yet_is_no_deadlock(works: Works, client: RedisClient) -> None:
    agents = [Agent("parent", None, program=parent), Agent("child", None, program=child)]
    await works.client.submit("parent", "go", id="p-1")
    async with routing(works.new_log(), client), works.worker(*agents):
        await works.until(lambda: works.parked("p-1.child-1") == "message" and works.parked("p-1") == "child")
    # given a message that lies in the inbox while no worker runs
    await works.client.send("p-1.child-1", "hello")
    assert swarm_in_log(works.log, Topics(), "p-1").sound


def test_a_swarm_that_is_not_there_is_named(works: Works) -> None:
    with pytest.raises(InputError, match="no swarm 'nobody'"):
        swarm_in_log(works.log, Topics(), "nobody")
