"""A partition loop beside an event loop: on a thread of its own, for as long as a block lasts."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from tracklog.infra.partition_loop import PartitionLoop

__all__ = ["owning"]


@asynccontextmanager
async def owning(partitions: PartitionLoop, group: str) -> AsyncIterator[asyncio.Event]:
    """Runs the loop as a member of the group. The event is set when it has ended by itself.

    Leaving the block stops it, waits for it, and raises what ended it.
    """
    loop, ended, stop = asyncio.get_running_loop(), asyncio.Event(), threading.Event()
    failed: list[BaseException] = []

    def own() -> None:
        try:
            partitions.run(group, stop)
        except BaseException as error:  # noqa: BLE001 - raised again where the block is left
            failed.append(error)
        with suppress(RuntimeError):  # the event loop is closed: nobody waits any more
            loop.call_soon_threadsafe(ended.set)

    thread = threading.Thread(target=own, name="tracklog-partitions", daemon=True)
    thread.start()
    try:
        yield ended
    finally:
        stop.set()
        await asyncio.to_thread(thread.join)
    if failed:
        raise failed[0]
