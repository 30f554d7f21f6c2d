"""What commands share that run until they are told to stop."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final

from tracklog.consumers.cli.run import Run
from tracklog.infra.log.port import Log
from tracklog.schemas.errors import ClientFatal, LogUnavailable, TracklogError

__all__ = ["run_together", "stop_at_signals", "stopped_by_signals", "tell_outage", "while_log_lives"]

LOOK_S: Final = 2.0
"""Between two looks whether the client of the log lives."""
LOOK_TIMEOUT_S: Final = 5.0
LEAVE_S_MAX: Final = 10.0
"""What is left of a process has so long to end when a part of it failed for good."""


def stop_at_signals() -> asyncio.Event:
    """Set by SIGTERM and Ctrl-C. For the event loop that runs now."""
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    return stop


def stopped_by_signals() -> threading.Event:
    """The same for a loop of one thread, which ends between two batches, so that its group hears of it."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    return stop


def tell_outage(run: Run, error: TracklogError | None) -> None:
    """A wait that says nothing looks like a program that hangs."""
    if error is None:
        run.out.note("it is back; going on")
    else:
        way_out = f"; {error.hint}" if error.hint else ""
        run.out.warning(f"waiting, for up to {run.settings.loop.outage_timeout_s:g} s: {error.message}{way_out}")


async def while_log_lives(
    log: Log, stop: asyncio.Event, fatal: Callable[[], ClientFatal | None] = lambda: None
) -> None:
    """Until `stop`. Raises ClientFatal once the client of the log has given up for good, or `fatal` says that it has:
    whatever runs on it would take that for an outage and wait for ever. An outage is no such thing."""
    while not stop.is_set():
        gone = fatal()
        if gone is not None:
            raise gone
        with suppress(LogUnavailable):
            await asyncio.to_thread(log.ping, LOOK_TIMEOUT_S)
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), LOOK_S)


async def run_together(stop: asyncio.Event, *work: Callable[[asyncio.Event], Coroutine[Any, Any, None]]) -> None:
    """Until all are over; when one of them is, for whatever reason, the others are told to stop. Raises what it did,
    the others having had LEAVE_S_MAX to end."""
    tasks = [asyncio.create_task(one(stop)) for one in work]
    done, others = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    stop.set()
    if others and any(not one.cancelled() and one.exception() is not None for one in done):
        await asyncio.wait(others, timeout=LEAVE_S_MAX)
    await asyncio.gather(*tasks)
