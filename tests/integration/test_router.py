"""The router: timers, expiries and messages into inboxes, over real Valkey; sessions on a log in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Final

import pytest

from tests.support.sessions import Program, ScriptedModel, World, asks, new_world, says
from tests.support.writing import read_accepted
from tracklog.consumers.routing.router import Router
from tracklog.infra.clock import SystemClock, SystemEntropy
from tracklog.infra.redis_client import RedisClient, connect
from tracklog.infra.settings import LogSettings, LoopSettings, Settings
from tracklog.processors.agenda import Agenda
from tracklog.processors.running import running
from tracklog.producers.opening import opened
from tracklog.producers.policy import Decision, Situation, hold
from tracklog.producers.session import Session
from tracklog.producers.settle import Timing
from tracklog.producers.tools import Tool
from tracklog.schemas import events as ev
from tracklog.schemas.errors import ApprovalNeeded, NothingReceived, TimerAwaited
from tracklog.schemas.values import Budgets, Choice, ResultStatus, ToolCall

WAIT_S: Final = 20.0
PATIENT: Final = Timing(receive_wait_s=WAIT_S)
AT_ONCE: Final = Timing(receive_wait_s=0.0)


@pytest.fixture
def world() -> World:
    world = new_world("http://127.0.0.1:1")
    world.log_clock = SystemClock()
    return world


@pytest.fixture
def client(redis_db: str) -> Iterator[RedisClient]:
    client = connect(redis_db, timeout_s=5.0)
    yield client
    client.close()


@asynccontextmanager
async def routing(world: World, client: RedisClient) -> AsyncIterator[Router]:
    log, clock = world.new_log(), SystemClock()
    settings = Settings(log=LogSettings(url="memory:"), loop=LoopSettings(batch_wait_s=0.0, poll_timeout_s=0.02))
    agenda = running(Agenda(), log, client, settings, clock=clock, entropy=SystemEntropy())
    router = Router(log, settings.topic_names, client, agenda, clock=clock)
    stop = asyncio.Event()
    task = asyncio.create_task(router.run(stop))
    try:
        yield router
    finally:
        stop.set()
        await task


async def until(ready: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not ready():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_a_timer_by_the_clock_goes_off_once_whoever_waits(world: World, client: RedisClient) -> None:
    async def nap(session: Session) -> None:
        await session.sleep(0.2, "nap")
        await session.end("rested")

    # given a program that set a timer and left
    with pytest.raises(TimerAwaited):
        await world.run(ScriptedModel(), nap, clock=SystemClock(), timing=AT_ONCE)
    # when the router runs, twice, and the program is there again
    async with routing(world, client), routing(world, client):
        await world.run(ScriptedModel(), nap, clock=SystemClock(), timing=PATIENT)
    # then it was set once and went off once, through the inbox
    assert len(world.bodies(ev.TimerSet)) == 1
    (fired,) = [event for event in world.events() if event.name == "TimerFired"]
    assert fired.envelope.inbox_id is not None
    # and the record answers without waiting
    await world.run(ScriptedModel(), nap, clock=SystemClock(), timing=AT_ONCE)


class Held:
    version: Final = "held"
    budgets: Final = Budgets()

    def decide(self, call: ToolCall, tool: Tool, situation: Situation) -> Decision:
        return hold("ask first", may_approve=("ann",), expires_in_s=0.1)


async def test_a_request_that_nobody_answers_expires_in_the_inbox(world: World, client: RedisClient) -> None:
    # given two held calls that nobody decides about
    model = ScriptedModel(asks(("call-1", "readonly"), ("call-2", "readonly")), says("done"))
    with pytest.raises(ApprovalNeeded):
        await world.run(model, policy=Held(), clock=SystemClock())
    # when their time is over
    async with routing(world, client) as router:
        await until(lambda: router.counts.expiries == 2)
    await world.run(model, policy=Held(), clock=SystemClock())
    # then both were refused, by what came out of the inbox
    resolved = [event for event in world.events() if event.name == "ApprovalResolved"]
    assert {one.envelope.inbox_id.source for one in resolved if one.envelope.inbox_id} == {"expiry/0", "expiry/1"}
    assert [one.choice for one in world.bodies(ev.ApprovalResolved)] == [Choice.EXPIRE] * 2
    assert [one.status for one in world.bodies(ev.ToolResult)] == [ResultStatus.DENIED] * 2


async def test_messages_reach_the_other_trajectory_once_and_in_order(world: World, client: RedisClient) -> None:
    async def tell(session: Session) -> None:
        await session.send("peer-1", "first")
        await session.send("peer-1", "second")
        await session.end("told")

    async def hear(session: Session) -> None:
        heard = [(await session.receive())["content"] for _ in range(2)]
        await session.end(heard)

    await world.run(ScriptedModel(), tell, clock=SystemClock())
    # when two routers bring what was sent, and one of them again after its Redis was wiped
    async with routing(world, client), routing(world, client):
        await hearing(world, hear, PATIENT)
    client.flushdb()
    async with routing(world, client) as router:
        await until(lambda: router.counts.messages >= 2)
    # then it was heard once, in order, after its causes
    events = read_accepted(world.new_log(), "peer-1")
    heard = [event for event in events if event.name == "MessageReceived"]
    assert [one.body.message.text for one in heard if isinstance(one.body, ev.MessageReceived)] == ["first", "second"]
    sent = [event for event in world.events() if event.name == "MessageSent"]
    for one, cause in zip(heard, sent, strict=True):
        assert (cause.envelope.trajectory_id, cause.envelope.seq) in {
            (ref.trajectory_id, ref.seq) for ref in one.envelope.causes
        }
        assert one.envelope.lamport > cause.envelope.lamport
    with pytest.raises(NothingReceived):
        await hearing(world, three, AT_ONCE, "peer-2")


async def test_nothing_is_heard_from_a_trajectory_of_another_tenant(world: World, client: RedisClient) -> None:
    async def tell(session: Session) -> None:
        await session.send("peer-1", "let me in")
        await session.end("told")

    await world.run(ScriptedModel(), tell, clock=SystemClock())
    async with routing(world, client) as router:
        await until(lambda: router.counts.messages == 1)
    with pytest.raises(NothingReceived):
        await hearing(world, three, AT_ONCE, tenant="elsewhere")
    # then its record says what came and why it was not taken
    [refused] = [one.body for one in read_accepted(world.new_log(), "peer-1") if one.name == "InboxRefused"]
    assert isinstance(refused, ev.InboxRefused)
    assert "another tenant" in refused.reason


async def three(session: Session) -> None:
    await session.receive()


async def hearing(
    world: World, program: Program, timing: Timing, name: str = "peer-1", *, tenant: str | None = None
) -> None:
    setup = world.setup(None, clock=SystemClock(), timing=timing)
    async with (
        world.process() as (log, producer),
        opened(producer, name, log=log, setup=setup, tenant=tenant) as session,
    ):
        await program(session)
