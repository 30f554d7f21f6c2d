"""From the log's delivery thread to the event loop: many reports, one wake-up (DESIGN §5)."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from tracklog.infra.log.port import Position
from tracklog.schemas.errors import AppendError

T = TypeVar("T")
Report = Callable[[T, Position | None, AppendError | None], None]


class Deliveries(Generic[T]):
    """Collects delivery reports on any thread and hands them on, in order, on the loop's thread.

    `room` is set at every hand-over: who waits for space in the log's queue waits for it.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, report: Report[T]) -> None:
        self._loop = loop
        self._report = report
        self._waiting: deque[tuple[T, Position | None, AppendError | None]] = deque()
        self._woken = False
        self.room = asyncio.Event()

    def delivered(self, item: T, position: Position | None, error: AppendError | None) -> None:
        """On the log's thread. Never blocks; a closed loop drops the report, as nobody is left to hear it."""
        self._waiting.append((item, position, error))
        if self._woken:
            return
        self._woken = True
        try:
            self._loop.call_soon_threadsafe(self._hand_over)
        except RuntimeError:
            self._waiting.clear()

    def _hand_over(self) -> None:
        self._woken = False
        waiting = self._waiting
        while waiting:
            item, position, error = waiting.popleft()
            self._report(item, position, error)
        self.room.set()
