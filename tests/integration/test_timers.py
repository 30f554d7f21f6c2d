"""Timers by the clock: gone off once, whatever dies, whoever says so twice, however clocks jump."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, Final

import pytest

from tests.support.routing import new_router, routing
from tests.support.working import Works
from tracklog.infra.clock import ManualClock, SystemClock
from tracklog.infra.log.memory import Fault
from tracklog.infra.log.partitioner import partition_of
from tracklog.infra.redis_client import RedisClient, connect
from tracklog.producers.session import Session
from tracklog.producers.turn import Agent

HOUR_S: Final = 3600.0


@pytest.fixture
def works() -> Works:
    return Works()


@pytest.fixture
def client(redis_db: str) -> Iterator[RedisClient]:
    client = connect(redis_db, timeout_s=5.0)
    yield client
    client.close()


def sleeper(*naps_s: float) -> Agent:
    async def sleep(session: Session, task: str) -> Any:
        for nap_s in naps_s:
            await session.sleep(nap_s)
        return "rested"

    return Agent("sleeper", None, program=sleep)


def fired(works: Works) -> int:
    return works.names("nap-1").count("TimerFired")


async def test_time_goes_faster_for_each_sleep_of_a_run(works: Works, client: RedisClient) -> None:
    """Given two sleeps of an hour, each is over after a part of a second, and none at once."""
    await works.client.submit("sleeper", "sleep", id="nap-1")
    async with works.worker(sleeper(HOUR_S, HOUR_S)), routing(works.new_log(), client, speed=2 * HOUR_S):
        assert (await works.client.result("nap-1", wait_s=15)).value == "rested"
    set_at, fired_at = (
        [event.envelope.recorded_at for event in works.events("nap-1") if event.name == name]
        for name in ("TimerSet", "TimerFired")
    )
    assert all(end - begin >= 500_000 for begin, end in zip(set_at, fired_at, strict=True))


@pytest.mark.parametrize("stored", [False, True], ids=["before it is stored", "after it is stored"])
async def test_a_router_that_dies_as_it_says_so_is_followed_by_another(
    works: Works, client: RedisClient, stored: bool
) -> None:
    await works.client.submit("sleeper", "sleep", id="nap-1")
    died = asyncio.Event()

    def dies(topic: str, key: bytes, value: bytes) -> Fault | None:
        first = not died.is_set()
        died.set()
        return Fault.STORE_UNKNOWN if stored and first else Fault.DROP_UNKNOWN

    async with works.worker(sleeper(0.1)):
        log = works.new_log()
        log.faults = dies
        router = asyncio.create_task(new_router(log, client).run(asyncio.Event()))
        await asyncio.wait_for(died.wait(), 10)
        router.cancel()
        await asyncio.gather(router, return_exceptions=True)
        async with routing(works.new_log(), client), routing(works.new_log(), client):
            await works.client.result("nap-1", wait_s=15)
        client.flushdb()
        async with routing(works.new_log(), client):
            await sleeps_behind(works)
    assert fired(works) == 1


async def test_a_clock_that_jumps_fires_late_or_early_and_once(works: Works, client: RedisClient) -> None:
    clock = ManualClock(SystemClock().now_us())
    await works.client.submit("sleeper", "sleep", id="nap-1")
    async with works.worker(sleeper(60.0, 60.0)):
        async with routing(works.new_log(), client, clock=clock):
            await works.until(lambda: works.parked("nap-1") == "timer")
            clock.jump_wall(-HOUR_S)
            await works.until(lambda: bool(client.keys("*due*")))
            assert fired(works) == 0
            clock.jump_wall(2 * HOUR_S)
            await works.client.result("nap-1", wait_s=15)
        # given a router that has lost all that was known, at an earlier time and at a later one
        client.flushdb()
        clock.jump_wall(-2 * HOUR_S)
        async with routing(works.new_log(), client, clock=clock):
            clock.jump_wall(3 * HOUR_S)
            await sleeps_behind(works)
    assert fired(works) == 2


async def sleeps_behind(works: Works) -> None:
    """Until a run whose events lie behind those of the other one has slept: the router has read all of them."""
    place = partition_of(b"nap-1", 2)
    other = next(name for n in range(2, 99) if partition_of((name := f"nap-{n}").encode(), 2) == place)
    await works.client.submit("sleeper", "sleep", id=other)
    await works.client.result(other, wait_s=15)
