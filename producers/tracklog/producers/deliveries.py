"""From the log's delivery thread to the event loop: many reports, one wake-up (DESIGN §5)."""

from __future__ import annotations

import asyncio
from collections import deque

from tracklog.producers.pipeline import Entry
from tracklog.schemas.errors import AppendError


class Deliveries:
    """Collects delivery reports on any thread and hands them on, in order, on the loop's thread.

    `room` is set at every hand-over: who waits for space in the log's queue waits for it.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[tuple[Entry, AppendError | None]] = deque()
        self._woken = False
        self.room = asyncio.Event()

    def take(self, entry: Entry, error: AppendError | None) -> None:
        """On any thread. Never blocks; a closed loop drops the report, as nobody is left to hear it."""
        self._waiting.append((entry, error))
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
            entry, error = waiting.popleft()
            entry.heard(error)
        self.room.set()
