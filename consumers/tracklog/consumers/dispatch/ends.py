"""Where the events end: those who ask at the same time are answered by one request (DESIGN §8, rule 5)."""

from __future__ import annotations

import asyncio
import itertools

from tracklog.infra.log.port import Log

__all__ = ["Ends"]


class Ends:
    """Of one topic and one event loop."""

    def __init__(self, log: Log, topic: str) -> None:
        self._log = log
        self._topic = topic
        self._tickets = itertools.count()
        self._asked: dict[int, int] = {}
        self._answers: dict[int, int | Exception] = {}
        self._asking = asyncio.Lock()

    async def of(self, partition: int) -> int:
        """The end of a partition, by a request that is made after this was called. Raises LogUnavailable."""
        ticket = next(self._tickets)
        self._asked[ticket] = partition
        try:
            async with self._asking:
                if ticket in self._asked:
                    await self._ask()
            answer = self._answers[ticket]
        finally:
            self._asked.pop(ticket, None)
            self._answers.pop(ticket, None)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def _ask(self) -> None:
        """For all who ask now. When it is cancelled, the next of those who wait asks again."""
        wanted = dict(self._asked)
        found: dict[int, int] = {}
        failed: Exception | None = None
        try:
            found = await asyncio.to_thread(self._log.ends, self._topic, set(wanted.values()))
        except Exception as error:  # noqa: BLE001 - raised where each waits
            failed = error
        for ticket, partition in wanted.items():
            if self._asked.pop(ticket, None) is not None:
                self._answers[ticket] = failed if failed is not None else found[partition]
