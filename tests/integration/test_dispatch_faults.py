"""A dispatcher whose ledger is away, and one whose time passes between its bid and the send."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import pytest

from tests.support.dispatching import dispatched, dispatching, new_dispatcher
from tests.support.ledger import Ledger, ledger
from tests.support.sessions import ScriptedModel, asks, new_world, says
from tracklog.consumers.dispatch.attempt import START_WITHIN_S, OpenCall
from tracklog.consumers.dispatch.dispatcher import Dispatcher
from tracklog.consumers.dispatch.slots import Row
from tracklog.infra.clock import SystemClock
from tracklog.infra.log.memory import Fault, MemoryLog
from tracklog.infra.log.memory_store import MemoryReader
from tracklog.producers.settle import Timing
from tracklog.schemas import events as ev
from tracklog.schemas.errors import LogUnavailable, PersonNeeded
from tracklog.schemas.ledger import Attempt, LedgerBody
from tracklog.schemas.topics import Topics
from tracklog.schemas.values import ResultStatus, Settled

SLOTTED = ("idempotent", "probe", "opaque")
CALLS = {f"call-{effect}": 1 for effect in SLOTTED}
BOUND_S = 60.0
TIMING = Timing(grace_s=70.0, outcome_wait_s=BOUND_S)


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
        self._how, self._ends, self._reader = how, log.ends, log.reader
        log.faults = self._append
        log.ends = self._ask  # type: ignore[method-assign]
        log.reader = self._read  # type: ignore[method-assign]

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

    def _ask(self, topic: str, partitions: Collection[int]) -> dict[int, int]:
        self._check(topic)
        return self._ends(topic, partitions)

    def _read(self, topic: str, starts: Mapping[int, int], *, follows: bool = False) -> MemoryReader:
        self._check(topic)
        return self._reader(topic, starts, follows=follows)

    def _check(self, topic: str) -> None:
        if self._how == "cannot be read" and self._is_met(topic):
            raise LogUnavailable("the ledger is away")


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


class Jumping(SystemClock):
    """Runs, and can be set: `wall_s` is how far its wall clock is off, `both_s` what has passed for nobody else."""

    wall_s = 0.0
    both_s = 0.0

    def now_us(self) -> int:
        return super().now_us() + round((self.wall_s + self.both_s) * 1_000_000)

    def monotonic_s(self) -> float:
        return super().monotonic_s() + self.both_s


@pytest.mark.parametrize("how", ["time passes", "the clock is set ahead", "time passes and the clock is set back"])
async def test_what_was_bid_for_is_not_sent_after_its_deadline(
    how: str, service: tuple[Ledger, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a dispatcher that stands still between its bid and the send, or whose clock jumps there
    counted, url = service
    world, clock = new_world(url), Jumping()
    world.log_clock = clock
    tools = dispatched(world.tools())
    is_open = Dispatcher.is_open

    async def slow(self: Dispatcher, call: OpenCall) -> bool:
        found = await is_open(self, call)
        if how == "the clock is set ahead":
            clock.wall_s += START_WITHIN_S
        else:
            clock.both_s += START_WITHIN_S
        if "set back" in how:
            clock.wall_s -= 3600
        return found

    monkeypatch.setattr(Dispatcher, "is_open", slow)
    # when it has a call of each class
    changes: dict[str, Any] = {"tools": tools, "timing": TIMING, "clock": clock}
    for effect in ("probe", "opaque"):
        model = ScriptedModel(asks((f"call-{effect}", effect)), says("done"))
        async with (
            asyncio.timeout(BOUND_S),
            dispatching(new_dispatcher(world, world.new_log(), tools, clock=clock)),
        ):
            try:
                await world.run(model, **changes)
            except PersonNeeded:
                pytest.fail("it knows that nothing was sent")
    # then nothing is sent
    assert counted.asked == {}
    assert {one.status for one in world.bodies(ev.ToolResult)} == {ResultStatus.EXPIRED}


@pytest.mark.parametrize("effect", SLOTTED)
async def test_a_call_that_was_bid_for_is_still_made_when_its_dispatcher_is_told_to_stop(
    effect: str, service: tuple[Ledger, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a dispatcher that is told to stop when it has won the slot of a call, and has not sent it
    counted, url = service
    world = new_world(url)
    world.log_clock = SystemClock()
    tools, stop = dispatched(world.tools()), asyncio.Event()
    enter = Dispatcher.enter

    async def told_to_stop(self: Dispatcher, call: OpenCall, slot: int, body: LedgerBody) -> Row:
        row = await enter(self, call, slot, body)
        if isinstance(body, Attempt):
            stop.set()
            while call.left_at is None:  # noqa: ASYNC110 - told by another task
                await asyncio.sleep(0.01)
        return row

    monkeypatch.setattr(Dispatcher, "enter", told_to_stop)
    model = ScriptedModel(asks(("call-1", effect)), says("done"))
    # when an agent leaves it that call
    async with asyncio.timeout(BOUND_S):
        agent = asyncio.create_task(world.run(model, tools=tools, clock=SystemClock(), timing=TIMING))
        await new_dispatcher(world, world.new_log(), tools).run(stop)
        # then it is made, and nobody finds it in doubt
        await agent
    (result,) = world.bodies(ev.ToolResult)
    assert (result.status, result.settled) == (ResultStatus.OK, Settled.DIRECT)
    assert counted.asked == {"call-1": 1}
