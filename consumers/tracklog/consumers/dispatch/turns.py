"""Who may run a tool now: at most so many calls at once, so many starts a second."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

from tracklog.infra.clock import Clock
from tracklog.producers.tools import Tool

__all__ = ["CALLS_MAX", "Turns"]

CALLS_MAX: Final = 64
"""Calls of one tool at once in one process, when the tool does not say."""


class Turns:
    """Of one process."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._places: dict[str, asyncio.Semaphore] = {}
        self._next_s: dict[str, float] = {}
        self._serial: dict[tuple[str, str], tuple[asyncio.Lock, int]] = {}

    @asynccontextmanager
    async def turn(self, tool: Tool, trajectory_id: str) -> AsyncIterator[None]:
        """Waits for a place. Calls of a tool that is `serial` come one after the other within a trajectory."""
        async with AsyncExitStack() as places:
            if tool.serial:
                await places.enter_async_context(self._alone((tool.name, trajectory_id)))
            limit = tool.calls_max if tool.calls_max is not None else CALLS_MAX
            await places.enter_async_context(self._places.setdefault(tool.name, asyncio.Semaphore(limit)))
            await self._in_time(tool)
            yield

    async def _in_time(self, tool: Tool) -> None:
        if tool.starts_per_s is None:
            return
        now_s = self._clock.monotonic_s()
        at_s = max(now_s, self._next_s.get(tool.name, now_s))
        self._next_s[tool.name] = at_s + 1 / tool.starts_per_s
        if at_s > now_s:
            await asyncio.sleep(at_s - now_s)

    @asynccontextmanager
    async def _alone(self, key: tuple[str, str]) -> AsyncIterator[None]:
        """A lock that is gone when nobody wants it any more."""
        lock, count = self._serial.get(key, (asyncio.Lock(), 0))
        self._serial[key] = (lock, count + 1)
        try:
            async with lock:
                yield
        finally:
            lock, count = self._serial.pop(key)
            if count > 1:
                self._serial[key] = (lock, count - 1)
