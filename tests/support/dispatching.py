"""Dispatchers beside the agents of a World: their tools, and running one for as long as a block lasts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from tests.support.sessions import Crash, World
from tests.support.working import Works
from tracklog.consumers.dispatch.dispatcher import Dispatcher
from tracklog.consumers.dispatch.kept import Keeper
from tracklog.infra.clock import Clock, SystemClock, SystemEntropy
from tracklog.infra.log.memory import Fault, MemoryLog
from tracklog.infra.settings import DispatchSettings, LoopSettings
from tracklog.producers.tools import ToolSet
from tracklog.schemas.topics import Topics

APPENDS = ("first append", "second append", "third append")


class Dying:
    """Faults of a dispatcher's log: it is gone at one of its appends, or where a tool says so."""

    def __init__(self, world: World, death: str) -> None:
        self._world = world
        self._at = APPENDS.index(death) if death in APPENDS else None
        self._count = 0
        self.died = asyncio.Event()
        world.die_at_point = death if death not in APPENDS else None

    def __call__(self, topic: str, key: bytes, value: bytes) -> Fault | None:
        if self._world.dead or self._count == self._at:
            self.died.set()
            raise Crash
        self._count += 1
        return None


def dispatched(tools: ToolSet, **changes: Any) -> ToolSet:
    """The same tools, but local ones, performed by dispatchers."""
    return ToolSet.of(*(replace(one, run="dispatch", **changes) for one in tools if one.effect != "local"))


def new_dispatcher(
    world: World | Works,
    log: MemoryLog,
    tools: ToolSet,
    *,
    clock: Clock | None = None,
    name: str = "dispatcher",
    keeper: Keeper | None = None,
    told: list[str] | None = None,
    **settings: Any,
) -> Dispatcher:
    return Dispatcher(
        log,
        Topics(),
        tools,
        blobs=world.blobs,
        clock=clock if clock is not None else SystemClock(),
        entropy=SystemEntropy(),
        name=name,
        settings=DispatchSettings(**settings),
        loop_settings=LoopSettings(poll_timeout_s=0.02),
        keeper=keeper,
        told=told.append if told is not None else lambda _: None,
    )


@asynccontextmanager
async def dispatching(dispatcher: Dispatcher) -> AsyncIterator[Dispatcher]:
    """Runs it for as long as the block lasts."""
    stop = asyncio.Event()
    running = asyncio.create_task(dispatcher.run(stop))
    try:
        yield dispatcher
    finally:
        stop.set()
        await running
