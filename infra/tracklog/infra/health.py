"""Whether a process lives, and whether it can do its work: what `/healthz` and `/readyz` answer (DESIGN §12).

Alive is what gets on: the loop goes round, each partition that has something to read moves, the event loop turns.
A log or a store that is away is no reason to restart anything, so it is part of readiness alone.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Final

from tracklog.infra.clock import Clock
from tracklog.infra.partition_loop import PartitionLoop
from tracklog.infra.settings_health import HealthSettings
from tracklog.schemas.errors import TracklogError

__all__ = ["Health"]

Check = Callable[[], str | None]
"""What is wrong, in words; None when nothing is."""

BEAT_S: Final = 1.0
CHECKED_S: Final = 1.0
"""Seconds for which the answer of a log or a store is good: probes that come in a crowd ask it once."""


class Health:
    """Of one process. Checks are added while it starts, and asked from any thread."""

    def __init__(self, settings: HealthSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._alive: list[Check] = []
        self._ready: list[Check] = []

    def follow(self, loop: PartitionLoop) -> None:
        """A partition loop is part of it: alive as it gets on, ready when it has its partitions."""
        self._alive.append(loop.progress.problem)
        self._ready.append(lambda: self._unready(loop))

    def beat(self, about: Callable[[], str] = lambda: "") -> None:
        """The event loop that runs now is part of it. `about`: what it was at when it does not turn any more."""
        loop = asyncio.get_running_loop()
        last_s = self._clock.monotonic_s()

        def turn() -> None:
            nonlocal last_s
            last_s = self._clock.monotonic_s()
            loop.call_later(BEAT_S, turn)

        def problem() -> str | None:
            age_s = self._clock.monotonic_s() - last_s
            if age_s <= self._settings.event_loop_stall_s:
                return None
            return f"the event loop has not turned for {age_s:.0f} s{about()}"

        turn()
        self._alive.append(problem)

    def needs(self, check: Check) -> None:
        """Something outside without which it is not ready. A TracklogError that the check raises is an answer too."""
        self._ready.append(_Checked(check, self._clock))

    def why_dead(self) -> list[str]:
        """Empty while it lives."""
        return _found(self._alive)

    def why_not_ready(self) -> list[str]:
        """Empty when it is; nothing is before it said what it needs."""
        return _found(self._ready) if self._ready else ["it is starting"]

    def _unready(self, loop: PartitionLoop) -> str | None:
        progress = loop.progress
        if progress.outage is not None:
            return f"waiting: {progress.outage}"
        if loop.positions or progress.was_assigned:
            return None
        if progress.has_polled and progress.running_s > self._settings.assignment_wait_s:
            return None  # more members than partitions: there are none for it
        return f"no partitions of {loop.topic} yet"


class _Checked:
    """Asks one at a time, and keeps the answer for a moment."""

    def __init__(self, check: Check, clock: Clock) -> None:
        self._check = check
        self._clock = clock
        self._lock = threading.Lock()
        self._answer: str | None = None
        self._asked_s: float | None = None

    def __call__(self) -> str | None:
        with self._lock:
            if self._asked_s is None or self._clock.monotonic_s() - self._asked_s > CHECKED_S:
                try:
                    self._answer = self._check()
                except TracklogError as error:
                    self._answer = error.message
                self._asked_s = self._clock.monotonic_s()
            return self._answer


def _found(checks: list[Check]) -> list[str]:
    return [problem for check in list(checks) if (problem := check()) is not None]
