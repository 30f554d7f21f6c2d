"""Trimming of the ledger: below the first entry of any open intent, its end taken before the events (DESIGN §8, 4);
and of the inbox, by the rule of `tracklog retention`."""

from __future__ import annotations

import asyncio
from typing import cast

from tests.simulation.log import SimLog, Store
from tests.simulation.loop import Process
from tests.simulation.truth import TOPICS
from tracklog.consumers.dispatch.follow import NEW, Followed, follow
from tracklog.consumers.retention.rules import inbox_cut
from tracklog.consumers.retention.survey import survey
from tracklog.infra.log.port import Log, Record
from tracklog.infra.log.ranges import read_range
from tracklog.schemas.codec import decode_event, decode_ledger


class Trimmer:
    """`every_s`: between two times that it trims."""

    def __init__(self, process: Process, store: Store, every_s: float) -> None:
        self._process, self._store, self._every_s = process, store, every_s
        self._log = cast(Log, SimLog(store))
        self._known: dict[str, Followed] = {}
        self._read_to = 0

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self._every_s * self._process.loop.chance.uniform(0.5, 1.5))
            self._store.trim(TOPICS.attempts, await self.bound())
            self._store.trim(TOPICS.inbox, await self.inbox_bound())

    async def bound(self) -> int:
        """The first offset that is kept."""
        end = await self.end()
        open_calls = await self.open_calls()
        return await asyncio.to_thread(self.first_of, open_calls, end)

    async def inbox_bound(self) -> int:
        end = (await asyncio.to_thread(self._log.bounds, TOPICS.inbox, 0)).end
        return await asyncio.to_thread(self._untaken, end)

    def _untaken(self, end: int) -> int:
        found = survey(self._log, self._log, TOPICS, 0)
        records = read_range(self._log, TOPICS.inbox, 0, found.inbox.first, end)
        return inbox_cut(TOPICS.inbox, found, records, end).before

    async def end(self) -> int:
        return (await asyncio.to_thread(self._log.bounds, TOPICS.attempts, 0)).end

    async def open_calls(self) -> frozenset[bytes]:
        return await asyncio.to_thread(self._open)

    def first_of(self, open_calls: frozenset[bytes], end: int) -> int:
        return next((one.offset for one in self.entries(end) if hash_of(one) in open_calls), end)

    def entries(self, end: int) -> list[Record]:
        first = self._log.bounds(TOPICS.attempts, 0).first
        return list(read_range(self._log, TOPICS.attempts, 0, first, end))

    def _open(self) -> frozenset[bytes]:
        end = self._log.bounds(TOPICS.events, 0).end
        for record in read_range(self._log, TOPICS.events, 0, self._read_to, end):
            event = decode_event(record.key, record.value, record.headers)
            name = event.envelope.trajectory_id
            self._known[name] = follow(self._known.get(name, NEW), event)
        self._read_to = end
        return frozenset(call.hash for one in self._known.values() for call in one.calls.values())


def hash_of(record: Record) -> bytes:
    return decode_ledger(record.key, record.value, record.headers).envelope.intent_hash
