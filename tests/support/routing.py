"""Routers in this process over one log, with real Redis."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tracklog.consumers.routing.router import Router
from tracklog.infra.clock import Clock, SystemClock, SystemEntropy
from tracklog.infra.log.memory import Faults, MemoryLog
from tracklog.infra.redis_client import RedisClient
from tracklog.infra.settings import LogSettings, LoopSettings, Settings
from tracklog.processors.agenda import Agenda
from tracklog.processors.running import running


def new_router(log: MemoryLog, client: RedisClient, clock: Clock | None = None, speed: float = 1.0) -> Router:
    settings = Settings(log=LogSettings(url="memory:"), loop=LoopSettings(batch_wait_s=0.0, poll_timeout_s=0.02))
    agenda = running(Agenda(), log, client, settings, clock=SystemClock(), entropy=SystemEntropy())
    return Router(
        log, settings.topic_names, client, agenda, clock=clock if clock is not None else SystemClock(), speed=speed
    )


@asynccontextmanager
async def routing(
    log: MemoryLog,
    client: RedisClient,
    *,
    faults: Faults | None = None,
    clock: Clock | None = None,
    speed: float = 1.0,
) -> AsyncIterator[Router]:
    """A router for as long as the block lasts. `log` is its own."""
    log.faults = faults
    router = new_router(log, client, clock, speed)
    stop = asyncio.Event()
    task = asyncio.create_task(router.run(stop))
    try:
        yield router
    finally:
        stop.set()
        await task
