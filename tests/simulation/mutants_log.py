"""Weakened rules of what is deleted from the topics, planted one at a time (see `mutants`)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final
from unittest.mock import patch

from tests.simulation.log import Store
from tests.simulation.mutants_dispatch import Mutant
from tests.simulation.trimming import Trimmer, hash_of
from tests.simulation.truth import TOPICS
from tracklog.infra.log.port import Record
from tracklog.schemas.codec import decode_ledger

__all__ = ["LOG"]


def _compacts(key: Callable[[Record], Any]) -> Mutant:
    """A cleaner that keeps the last entry of each key."""

    def trim(self: Store, topic: str, before: int) -> None:
        if topic != TOPICS.attempts:
            return
        last: dict[Any, int] = {}
        for record in self.of(topic):
            if (topic, record.offset) not in self.gone:
                known = last.get(key(record))
                self.gone.update(() if known is None else [(topic, known)])
                last[key(record)] = record.offset

    return lambda: patch.object(Store, "trim", trim)


def _call_and_slot(record: Record) -> Any:
    read = decode_ledger(record.key, record.value, record.headers)
    return read.envelope.intent_hash, read.envelope.slot, read.name == "Done"


async def _events_first(self: Any) -> int:
    open_calls = await self.open_calls()
    await asyncio.sleep(self._process.loop.chance.uniform(0.0, 5.0))
    end = await self.end()
    return int(self.first_of(open_calls, end))


async def _all_done(self: Any) -> int:
    """The first entry whose call has no Done."""
    end = await self.end()
    entries = self.entries(end)
    done = {hash_of(one) for one in entries if decode_ledger(one.key, one.value, one.headers).name == "Done"}
    return int(next((one.offset for one in entries if hash_of(one) not in done), end))


async def _last_done(self: Any) -> int:
    entries = self.entries(await self.end())
    done = [one.offset for one in entries if decode_ledger(one.key, one.value, one.headers).name == "Done"]
    return int(max(done, default=self._store.first.get(TOPICS.attempts, 0)))


async def _all_of_the_inbox(self: Any) -> int:
    return len(self._store.of(TOPICS.inbox))


LOG: Final[dict[str, Mutant]] = {
    "the ledger is compacted by call [K01]": _compacts(hash_of),
    "the ledger is compacted by call and slot [K02]": _compacts(_call_and_slot),
    "trimmed by events that were read before the ledger's end [K05]": lambda: patch.object(
        Trimmer, "bound", _events_first
    ),
    "trimmed while every call has a Done [K06]": lambda: patch.object(Trimmer, "bound", _all_done),
    "trimmed below the last Done [K07]": lambda: patch.object(Trimmer, "bound", _last_done),
    "the inbox is trimmed of what nobody has taken": lambda: patch.object(Trimmer, "inbox_bound", _all_of_the_inbox),
}
