"""The inbox of one trajectory as its worker has read it: what comes while a session is open is there at once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from tracklog.producers.mailbox import Incoming
from tracklog.producers.roster import Kept

__all__ = ["WorkerMailbox"]


class WorkerMailbox:
    """See Mailbox. What is taken is put aside in the roster until it is known whether that stands."""

    def __init__(self, kept: Kept) -> None:
        self._kept = kept
        self._came = asyncio.Event()
        kept.came = self._came

    def waiting(self) -> Sequence[Incoming]:
        self._came.clear()
        return [arrival.incoming for arrival in self._kept.arrivals]

    def took(self, one: Incoming) -> None:
        self._kept.put_aside(one.position)

    async def look(self) -> None:
        """The partition loop reads."""

    async def wait(self, timeout_s: float) -> bool:
        try:
            await asyncio.wait_for(self._came.wait(), timeout_s)
        except TimeoutError:
            return False
        return True
