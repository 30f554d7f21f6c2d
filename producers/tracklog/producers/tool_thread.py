"""Work that blocks, in a thread of its own: it stops neither the event loop nor the end of the process.

The threads of an executor are waited for when the loop closes, so one tool that hangs would keep the process
alive for ever, and a handful of them would stop all others.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeVar

from tracklog.schemas.errors import ToolError

__all__ = ["THREADS_MAX", "in_thread"]

THREADS_MAX: Final = 256
"""Threads at one time, in the process: one that was given up on counts until it ends."""

_free = threading.BoundedSemaphore(THREADS_MAX)

T = TypeVar("T")


async def in_thread(work: Callable[[], T]) -> T:
    """What `work` returns or raises, run under the caller's context variables.

    Cancelled, it gives up waiting; a thread cannot be stopped from outside. Raises ToolError when THREADS_MAX run.
    """
    free = _free  # the thread gives back what was taken here, whatever stands there by then
    if not free.acquire(blocking=False):
        raise ToolError(
            f"{THREADS_MAX} calls of blocking functions are running",
            hint="some of them hang: give what they wait for a bound of its own",
        )
    done: asyncio.Future[tuple[Any, BaseException | None]] = asyncio.get_running_loop().create_future()
    run = partial(contextvars.copy_context().run, work)
    try:
        threading.Thread(target=_run, args=(run, done, free), name="tracklog-tool", daemon=True).start()
    except RuntimeError as refused:  # the system gives no more threads
        free.release()
        hint = "run fewer calls at one time"
        raise ToolError(f"no thread for a blocking function: {refused}", hint=hint) from refused
    value, error = await done
    if error is not None:
        raise error
    return value  # type: ignore[no-any-return]


def _run(
    run: Callable[[], Any], done: asyncio.Future[tuple[Any, BaseException | None]], free: threading.BoundedSemaphore
) -> None:
    outcome: tuple[Any, BaseException | None]
    try:
        outcome = (run(), None)
    except BaseException as error:  # noqa: BLE001 - carried to the caller, whatever it is
        outcome = (None, error)
    finally:
        free.release()
    with suppress(RuntimeError):  # the loop is closed: nobody waits any more
        done.get_loop().call_soon_threadsafe(_report, done, outcome)


def _report(done: asyncio.Future[Any], outcome: tuple[Any, BaseException | None]) -> None:
    if not done.done():
        done.set_result(outcome)
