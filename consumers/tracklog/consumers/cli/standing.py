"""What commands share that run until they are told to stop."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Coroutine
from typing import Any

from tracklog.consumers.cli.run import Run
from tracklog.infra.partition_loop import OUTAGE_S_MAX
from tracklog.schemas.errors import TracklogError

__all__ = ["run_together", "stop_at_signals", "stopped_by_signals", "tell_outage"]


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
    """A wait of two minutes that says nothing looks like a program that hangs."""
    if error is None:
        run.out.note("it is back; going on")
    else:
        run.out.warning(f"waiting, for up to {OUTAGE_S_MAX:g} s: {error.message}")


async def run_together(stop: asyncio.Event, *work: Callable[[asyncio.Event], Coroutine[Any, Any, None]]) -> None:
    """Until all are over; when one of them is, for whatever reason, the others are told to stop. Raises what it did."""
    tasks = [asyncio.create_task(one(stop)) for one in work]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    stop.set()
    await asyncio.gather(*tasks)
