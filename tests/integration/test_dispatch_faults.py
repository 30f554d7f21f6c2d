"""A dispatcher whose ledger is away, and one whose time passes between its bid and the send."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.dispatching import dispatched, dispatching, new_dispatcher
from tests.support.ledger import Ledger, ledger
from tests.support.sessions import ScriptedModel, asks, new_world, says
from tracklog.consumers.dispatch.attempt import START_WITHIN_S, OpenCall
from tracklog.consumers.dispatch.dispatcher import Dispatcher
from tracklog.infra.clock import SystemClock
from tracklog.infra.log.memory import Fault, MemoryLog
from tracklog.infra.log.port import Bounds
from tracklog.producers.settle import Timing
from tracklog.schemas import events as ev
from tracklog.schemas.errors import LogUnavailable, PersonNeeded
from tracklog.schemas.topics import Topics
from tracklog.schemas.values import ResultStatus

TIMING = Timing(grace_s=70.0, outcome_wait_s=20.0)
SLOTTED = ("idempotent", "probe", "opaque")
CALLS = {f"call-{effect}": 1 for effect in SLOTTED}
BOUND_S = 20.0


@pytest.fixture
def service() -> Iterator[tuple[Ledger, str]]:
    with ledger() as kept:
        yield kept


class Away:
    """A log whose attempt ledger is not to be reached while `on`; `met` when that was noticed twice."""

    def __init__(self, log: MemoryLog, how: str) -> None:
        self.on = False
        self.met = asyncio.Event()
        self._loop, self._times = asyncio.get_running_loop(), 0
        self._how, self._bounds = how, log.bounds
        log.faults = self._append
        log.bounds = self._read  # type: ignore[method-assign]

    def _is_met(self, topic: str) -> bool:
        if not self.on or topic != Topics().attempts:
            return False
        self._times += 1
        if self._times > 1:
            self._loop.call_soon_threadsafe(self.met.set)
        return True

    def _append(self, topic: str, key: bytes, value: bytes) -> Fault | None:
        fault = {"refuses": Fault.REFUSE, "does not say": Fault.DROP_UNKNOWN}.get(self._how)
        return fault if fault is not None and self._is_met(topic) else None

    def _read(self, topic: str, partition: int) -> Bounds:
        if self._how == "cannot be read" and self._is_met(topic):
            raise LogUnavailable("the ledger is away")
        return self._bounds(topic, partition)


@pytest.mark.parametrize("how", ["refuses", "does not say", "cannot be read"])
async def test_without_the_ledger_nothing_is_sent_and_it_goes_on_when_that_is_back(
    how: str, service: tuple[Ledger, str]
) -> None:
    # given a dispatcher that has its partitions, and loses the ledger
    counted, url = service
    world = new_world(url)
    world.log_clock = SystemClock()
    tools, log = dispatched(world.tools()), world.new_log()
    away, dispatcher = Away(log, how), new_dispatcher(world, log, tools)
    model = ScriptedModel(asks(*((f"call-{effect}", effect) for effect in SLOTTED)), says("done"))
    async with asyncio.timeout(BOUND_S), dispatching(dispatcher):
        while len(dispatcher.partitions) < log.partition_count(Topics().events):  # noqa: ASYNC110 - told by a thread
            await asyncio.sleep(0.01)
        away.on = True
        # when an agent leaves it a call of each class that takes slots
        agent = asyncio.create_task(world.run(model, tools=tools, clock=SystemClock(), timing=TIMING))
        await away.met.wait()
        # then nothing is sent
        assert not agent.done()
        assert counted.asked == {}
        # and each is made once when the ledger is back
        away.on = False
        await agent
    assert {one.status for one in world.bodies(ev.ToolResult)} == {ResultStatus.OK}
    assert counted.asked == CALLS


@pytest.mark.parametrize("how", ["time passes", "the clock is set ahead", "time passes and the clock is set back"])
async def test_what_was_bid_for_is_not_sent_after_its_deadline(
    how: str, service: tuple[Ledger, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a dispatcher that stands still between its bid and the send, or whose clock jumps there
    counted, url = service
    world = new_world(url)
    tools = dispatched(world.tools())
    is_open = Dispatcher.is_open

    async def slow(self: Dispatcher, call: OpenCall) -> bool:
        found = await is_open(self, call)
        if how == "the clock is set ahead":
            world.clock.jump_wall(START_WITHIN_S)
        else:
            world.clock.advance(START_WITHIN_S)
        if "set back" in how:
            world.clock.jump_wall(-3600)
        return found

    monkeypatch.setattr(Dispatcher, "is_open", slow)
    # when it has a call of each class
    changes: dict[str, Any] = {"tools": tools, "timing": TIMING}
    for effect in ("probe", "opaque"):
        model = ScriptedModel(asks((f"call-{effect}", effect)), says("done"))
        async with (
            asyncio.timeout(BOUND_S),
            dispatching(new_dispatcher(world, world.new_log(), tools, clock=world.clock)),
        ):
            try:
                await world.run(model, **changes)
            except PersonNeeded:
                pytest.fail("it knows that nothing was sent")
    # then nothing is sent
    assert counted.asked == {}
    assert {one.status for one in world.bodies(ev.ToolResult)} == {ResultStatus.EXPIRED}
