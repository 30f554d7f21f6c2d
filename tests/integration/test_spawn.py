"""Child runs: begun once by the router, done by workers, their end told to the parent once."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from tests.support.routing import new_router, routing
from tests.support.sessions import ScriptedModel, new_world, says
from tests.support.working import Works
from tests.support.writing import read_accepted
from tracklog.consumers.refusals import refusals
from tracklog.infra.clock import SystemClock, SystemEntropy
from tracklog.infra.log.memory import Fault, Faults
from tracklog.infra.log.port import Record
from tracklog.infra.redis_client import RedisClient, connect
from tracklog.processors.outbox import Outbox
from tracklog.producers.fork import forked
from tracklog.producers.opening import opened
from tracklog.producers.producer import EventProducer
from tracklog.producers.session import Session
from tracklog.producers.settle import Timing
from tracklog.producers.setup import Setup
from tracklog.producers.turn import Agent, Program
from tracklog.schemas import events as ev
from tracklog.schemas.errors import SessionMisused
from tracklog.schemas.topics import Topics
from tracklog.schemas.values import Ending


@pytest.fixture
def works() -> Works:
    return Works()


@pytest.fixture
def client(redis_db: str) -> Iterator[RedisClient]:
    client = connect(redis_db, timeout_s=5.0)
    yield client
    client.close()


async def planner(session: Session, task: str) -> Any:
    ids = [await session.spawn("writer", part) for part in task.split()]
    return [(await session.child_result(one)).value for one in ids]


async def writer(session: Session, task: str) -> str:
    return f"wrote {task}"


def agents(**programs: Program) -> list[Agent]:
    return [Agent(name, None, program=program) for name, program in programs.items()]


@asynccontextmanager
async def running(works: Works, client: RedisClient, *given: Agent, workers: int = 1) -> AsyncIterator[None]:
    async with AsyncExitStack() as stack:
        for _ in range(workers):
            await stack.enter_async_context(routing(works.new_log(), client))
            await stack.enter_async_context(works.worker(*given))
        yield


def received(works: Works, trajectory_id: str) -> list[str]:
    events = works.events(trajectory_id)
    return [event.body.message.text for event in events if isinstance(event.body, ev.MessageReceived)]


async def test_a_parent_hears_how_its_children_ended_and_holds_no_task_meanwhile(
    works: Works, client: RedisClient
) -> None:
    await works.client.submit("planner", "one two", id="plan-1")
    # given a worker and no router: the parent has stated its children and left
    async with works.worker(*agents(planner=planner, writer=writer)) as worker:
        await works.until(lambda: works.parked("plan-1") == "child" and worker.running == 0)
    assert works.events("plan-1")[-1].envelope.ext["waits_for"] == "plan-1.child-1"
    # when two routers and two workers run
    async with running(works, client, *agents(planner=planner, writer=writer), workers=2):
        result = await works.client.result("plan-1", wait_s=10)
    # then each child was done once and heard of once, of the same swarm, after its causes
    assert result.value == ["wrote one", "wrote two"]
    assert sorted(received(works, "plan-1")) == ['"wrote one"', '"wrote two"']
    parent = {event.envelope.seq: event for event in works.events("plan-1")}
    for child_id in ("plan-1.child-1", "plan-1.child-2"):
        claim, *_ = events = works.events(child_id)
        (start,) = [event.body for event in events if isinstance(event.body, ev.TaskStarted)]
        assert (start.swarm, start.parent and start.parent.trajectory_id) == ("plan-1", "plan-1")
        assert start.parent is not None
        assert claim.envelope.causes == (start.parent,)
        assert claim.envelope.lamport > parent[start.parent.seq].envelope.lamport


async def test_a_child_of_an_unknown_agent_is_a_refusal_in_words(works: Works, client: RedisClient) -> None:
    async def asks_a_stranger(session: Session, task: str) -> Any:
        result = await session.child_result(await session.spawn("stranger", task))
        return [result.ending.value, result.reason]

    await works.client.submit("planner", "one", id="plan-1")
    async with running(works, client, *agents(planner=asks_a_stranger)):
        ending, reason = (await works.client.result("plan-1", wait_s=10)).value
    assert ending == "refused"
    assert "no worker has an agent 'stranger'; known are planner" in reason


async def test_a_child_whose_id_is_taken_is_a_refusal_and_the_other_run_goes_on(
    works: Works, client: RedisClient
) -> None:
    async def asks(session: Session, task: str) -> Any:
        return (await session.child_result(await session.spawn("writer", task))).reason

    await works.client.submit("writer", "another task", id="plan-1.child-1")
    await works.client.submit("planner", "one", id="plan-1")
    async with running(works, client, *agents(planner=asks, writer=writer)):
        reason = (await works.client.result("plan-1", wait_s=10)).value
        other = await works.client.result("plan-1.child-1", wait_s=10)
    assert reason == "there is a trajectory 'plan-1.child-1' already"
    assert other.value == "wrote another task"


async def waits(session: Session, task: str) -> Any:
    return (await session.receive())["content"]


async def delegates(session: Session, task: str) -> Any:
    return (await session.child_result(await session.spawn("waits", task))).value


async def test_a_cancel_reaches_children_and_their_children(works: Works, client: RedisClient) -> None:
    async def top(session: Session, task: str) -> Any:
        return (await session.child_result(await session.spawn("delegates", task))).value

    await works.client.submit("top", "one", id="plan-1")
    ids = ["plan-1", "plan-1.child-1", "plan-1.child-1.child-1"]
    async with running(works, client, *agents(top=top, delegates=delegates, waits=waits)):
        await works.until(lambda: works.parked(ids[-1]) == "message")
        await works.client.cancel("plan-1", "no longer wanted")
        results = [await works.client.result(one, wait_s=10) for one in ids]
        # and the end of each child was told to its parent, which had ended
        await works.until(lambda: all("InboxRefused" in works.names(parent) for parent in ids[:2]))
    assert [one.ending for one in results] == [Ending.CANCELLED] * 3
    assert list(refusals(works.new_log(), Topics())) == []
    assert "its parent was cancelled" in results[-1].reason
    assert len({event.envelope.ext.get("depth") for event in works.events(ids[-1])} & {"2"}) == 1


async def test_a_parent_that_ends_takes_its_children_with_it(works: Works, client: RedisClient) -> None:
    async def leaves(session: Session, task: str) -> Any:
        await session.spawn("waits", task)

    await works.client.submit("leaves", "one", id="plan-1")
    async with running(works, client, *agents(leaves=leaves, waits=waits)):
        result = await works.client.result("plan-1.child-1", wait_s=10)
    assert (result.ending, "its parent has ended" in result.reason) == (Ending.CANCELLED, True)


@pytest.mark.parametrize(
    ("settings", "words"), [({"children_max": 1}, "has spawned 1 child"), ({"depth_max": 0}, "deep")]
)
async def test_the_limits_are_errors_that_name_themselves(works: Works, settings: dict[str, Any], words: str) -> None:
    await works.client.submit("planner", "one two", id="plan-1")
    async with works.worker(*agents(planner=planner), **settings):
        await works.until(lambda: works.parked("plan-1") == "failed")
    body = works.events("plan-1")[-1].body
    assert isinstance(body, ev.OwnershipReleased)
    assert words in body.reason
    assert next(iter(settings)) in body.reason


async def parent(session: Session) -> None:
    ids = [await session.spawn("writer", part) for part in ("one", "two")]
    await session.end([(await session.child_result(one)).value for one in ids])


async def test_a_parent_killed_at_any_append_hears_of_each_child_once(client: RedisClient) -> None:
    for at in itertools.count():
        works = Works()
        async with running(works, client, *agents(writer=writer)):
            if not await killed(works, parent, at):
                break
            await run(works, parent)
        check_once(works)
        client.flushdb()
    assert at > 6


@pytest.mark.parametrize("stored", [False, True], ids=["before it is stored", "after it is stored"])
async def test_a_router_killed_at_any_append_says_each_thing_once(client: RedisClient, stored: bool) -> None:
    for at in range(4):
        works = Works()
        async with works.worker(*agents(writer=writer)):
            going = asyncio.create_task(run(works, parent))
            # given a router that is gone at this append: two Submits, two ends
            dying = Dying(at, stored=stored)
            log = works.new_log()
            log.faults = dying
            router = asyncio.create_task(new_router(log, client).run(asyncio.Event()))
            await asyncio.wait_for(dying.died.wait(), 10)
            router.cancel()
            await asyncio.gather(router, return_exceptions=True)
            # when another one runs, and one that has lost all that Redis had
            async with routing(works.new_log(), client):
                await going
            client.flushdb()
            async with routing(works.new_log(), client) as again:
                await works.until(lambda: again.counts.children + again.counts.outcomes == 4)
        # then nothing happened twice
        check_once(works)
        client.flushdb()


class Dying:
    """The faults of a process that is gone at one of its appends; `stored`: that one is in the log."""

    def __init__(self, at: int, *, stored: bool) -> None:
        self._at = at
        self._stored = stored
        self.died = asyncio.Event()

    def __call__(self, topic: str, key: bytes, value: bytes) -> Fault | None:
        self._at -= 1
        if self._at >= 0:
            return None
        self.died.set()
        return Fault.STORE_UNKNOWN if self._stored and self._at == -1 else Fault.DROP_UNKNOWN


async def run(works: Works, program: Callable[[Session], Awaitable[None]], faults: Faults | None = None) -> None:
    log = works.new_log()
    log.faults = faults
    setup = Setup("planner", "one two", blobs=works.blobs, timing=Timing(receive_wait_s=10.0))
    async with (
        EventProducer(log, topics=Topics(), clock=SystemClock(), entropy=SystemEntropy()) as producer,
        opened(producer, "plan-1", log=log, setup=setup) as session,
    ):
        await program(session)
    log.close()


async def killed(works: Works, program: Callable[[Session], Awaitable[None]], at: int) -> bool:
    """Whether it was killed at this append, or came to its end before."""
    dying = Dying(at, stored=False)
    going, death = asyncio.create_task(run(works, program, dying)), asyncio.create_task(dying.died.wait())
    await asyncio.wait({going, death}, return_when=asyncio.FIRST_COMPLETED)
    for one in (death, going):
        one.cancel()
    await asyncio.gather(going, death, return_exceptions=True)
    return dying.died.is_set()


def check_once(works: Works) -> None:
    events = works.events("plan-1")
    (end,) = [event.body for event in events if isinstance(event.body, ev.TaskEnded)]
    assert end.result is not None
    assert end.result.text == '["wrote one","wrote two"]'
    assert sorted(received(works, "plan-1")) == ['"wrote one"', '"wrote two"']
    assert [event.body.peer for event in events if isinstance(event.body, ev.MessageSent)] == [
        "plan-1.child-1",
        "plan-1.child-2",
    ]
    for child_id in ("plan-1.child-1", "plan-1.child-2"):
        names = works.names(child_id)
        assert (names.count("TaskStarted"), names.count("TaskEnded"), names.count("InboxRefused")) == (1, 1, 0)


async def test_a_fork_beside_its_origin_tells_nobody_and_spawns_nothing() -> None:
    world = new_world("")

    async def talks(session: Session, *, spawns: bool = False) -> None:
        for turn in ("one", "two"):
            await session.build_context([{"role": "user", "content": turn}])
            await session.call_model()
        await session.send("peer-1", "hello")
        if spawns:
            await session.spawn("writer", "one")
        await session.end("done")

    await world.run(ScriptedModel(says("a"), says("b")), talks)
    setup = world.setup(ScriptedModel(says("a"), says("c")))
    async with (
        world.process() as (log, producer),
        forked(producer, "trip-1b", origin="trip-1", turn=2, log=log, setup=setup) as session,
    ):
        with pytest.raises(SessionMisused, match="a fork beside its origin"):
            await talks(session, spawns=True)
    posts = {}
    for name in ("trip-1", "trip-1b"):
        outbox = Outbox()
        for at, event in enumerate(read_accepted(world.new_log(), name)):
            outbox = outbox.after(event, Record("events", 0, at, 0, b"", b"", ()))
        posts[name] = len(outbox.posts)
    assert posts == {"trip-1": 1, "trip-1b": 0}
