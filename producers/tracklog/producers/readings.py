"""What a session reads for its program: clock, randomness, and any other reading as a step; each is recorded once."""

from __future__ import annotations

import inspect
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final

import orjson

from tracklog.producers.bodies import json_of
from tracklog.producers.journal import Journal
from tracklog.producers.record import JSON, Record
from tracklog.producers.setup import Setup
from tracklog.schemas import events as ev
from tracklog.schemas.values import ObservedKind

__all__ = ["Readings"]

NONCE_BITS: Final = 53
"""Of a nonce that make a float: as many as its mantissa has."""


class Readings:
    """Of one session."""

    def __init__(self, setup: Setup, record: Record, journal: Journal | None) -> None:
        self._setup = setup
        self._record = record
        self._journal = journal
        self._occurrences: Counter[tuple[ObservedKind, str]] = Counter()

    def recall(self, rows: Iterable[Sequence[str]]) -> None:
        """Takes in what was read before a checkpoint: (kind, name) each."""
        self._occurrences.update((ObservedKind(kind), name) for kind, name in rows)

    async def step(self, name: str, fn: Callable[[], Any]) -> Any:
        """What `fn` returned when it was run."""

        async def run() -> str:
            value = fn()
            return json_of(name, await value if inspect.isawaitable(value) else value)

        return orjson.loads(await self._observe(ObservedKind.STEP, name, run))

    async def now_us(self) -> int:
        async def run() -> str:
            return str(self._setup.clock.now_us())

        return int(await self._observe(ObservedKind.CLOCK, "now", run))

    async def random(self) -> float:
        async def run() -> str:
            drawn = int.from_bytes(self._setup.entropy.nonce()[:8], "big") >> (64 - NONCE_BITS)
            return repr(drawn / (1 << NONCE_BITS))

        return float(await self._observe(ObservedKind.RANDOM, "random", run))

    async def uuid(self) -> uuid.UUID:
        async def run() -> str:
            return str(uuid.UUID(bytes=self._setup.entropy.nonce(), version=4))

        return uuid.UUID(await self._observe(ObservedKind.ID, "uuid", run))

    async def _observe(self, kind: ObservedKind, name: str, run: Callable[[], Awaitable[str]]) -> str:
        occurrence = self._occurrences[kind, name]
        self._occurrences[kind, name] += 1
        if self._journal is not None:
            self._journal.add("observed", kind.value, name)
        asked = f"{kind.value} {name!r}, occurrence {occurrence}"
        with self._record.strand.beside(asked):
            found = await self._record.observed(kind, name, occurrence, asked)
            if found is not None:
                value = await self._record.whole(found.body.value)
                if self._record.asking is not None and kind is ObservedKind.STEP:
                    await self._record.asking.step(found, value, run)
                return value
            self._record.check_live(asked)
            text = await run()
            body = ev.Observed(kind=kind, name=name, occurrence=occurrence, value=await self._record.body(text, JSON))
            await self._record.write(body)
            return await self._record.whole(body.value) if self._record.redaction is not None else text
