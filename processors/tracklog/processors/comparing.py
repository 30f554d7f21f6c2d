"""What a view has in Redis against the log: folded afresh in memory, and compared key by key (DESIGN §10)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, Generic, NamedTuple, TypeVar

from tracklog.infra.log.port import Log, Record
from tracklog.infra.log.ranges import read_range
from tracklog.processors.bundle import Bundle
from tracklog.processors.memory_store import MemoryStore
from tracklog.processors.parked import PARKED, RETRY
from tracklog.processors.processor import Processor
from tracklog.processors.redis_store import RedisStore
from tracklog.processors.view import View, ViewBounds
from tracklog.schemas.errors import StoreConflict

S = TypeVar("S")

BATCH: Final = 1000
TRIES: Final = 20
"""How often a partition that moves meanwhile is folded on and compared again."""
_OF_RUNNER: Final = frozenset({PARKED, RETRY})


class Difference(NamedTuple):
    """The first key that differs. None: not there."""

    partition: int
    key: str
    stored: Any
    folded: Any


class Compared(NamedTuple):
    """`positions` up to which both were folded, by partition."""

    positions: dict[int, int]
    keys: int
    difference: Difference | None


def compare(
    processor: Processor[S],
    store: RedisStore,
    log: Log,
    topic: str,
    *,
    partitions: int,
    state_bytes_max: int,
    progress: Callable[[int], object] = lambda _: None,
) -> Compared:
    """Raises StoreConflict when the store moves faster than it is folded. `progress` is told of records folded."""
    positions: dict[int, int] = {}
    keys = 0
    for partition in range(partitions):
        fresh = _Fresh(processor, store, log, topic, partition, partitions, state_bytes_max, progress)
        positions[partition], found, difference = fresh.compared()
        keys += found
        if difference is not None:
            return Compared(positions, keys, difference)
    return Compared(positions, keys, None)


def digest(content: Iterable[tuple[str, Any]]) -> str:
    """One hash of all keys, in their order: equal for equal content. What is parked does not count."""
    running = hashlib.sha256()
    for key, value in content:
        if key not in _OF_RUNNER:
            running.update(f"{key}\0{_canonical(value)}\n".encode())
    return running.hexdigest()


class _Fresh(Generic[S]):
    """One partition, folded in memory as far as the store is."""

    def __init__(
        self,
        processor: Processor[S],
        store: RedisStore,
        log: Log,
        topic: str,
        partition: int,
        partitions: int,
        state_bytes_max: int,
        progress: Callable[[int], object],
    ) -> None:
        self._store, self._log, self._topic, self._partition = store, log, topic, partition
        self._progress = progress
        self._memory = MemoryStore(store.keys, source=store.source)
        view: View[S] = View(
            processor,
            self._memory,
            partitions=partitions,
            bounds=ViewBounds(cached_max=BATCH, state_bytes_max=state_bytes_max),
            reread=self._read,
            pause=lambda _: None,
        )
        self._bundle = Bundle([view], partitions=partitions)
        self._position = self._bundle.restore(partition)

    def compared(self) -> tuple[int, int, Difference | None]:
        """Position, keys, and the first difference, of a moment in which the store stood still."""
        for _ in range(TRIES):
            before = self._store.checkpoint(self._partition)
            self._fold_to(0 if before is None else before.position)
            keys, difference = _differing(
                self._partition, self._store.content(self._partition), self._memory.content(self._partition)
            )
            if self._store.checkpoint(self._partition) == before:
                return self._position, keys, difference
        raise StoreConflict(
            f"{self._store.keys.base(self._partition)}* moved {TRIES} times while it was compared",
            hint="compare when less is appended, or stop the process that folds it for a moment",
        )

    def _fold_to(self, position: int) -> None:
        batch: list[Record] = []
        for record in self._read(self._partition, self._position, position):
            batch.append(record)
            if len(batch) == BATCH:
                self._fold(batch, batch[-1].offset + 1)
                batch = []
        if position > self._position:
            self._fold(batch, position)

    def _fold(self, batch: list[Record], position: int) -> None:
        self._bundle.fold(self._partition, batch, position)
        self._position = position
        self._progress(len(batch))

    def _read(self, partition: int, start: int, end: int) -> Iterator[Record]:
        return read_range(self._log, self._topic, partition, start, end)


def _differing(
    partition: int, stored: Iterable[tuple[str, Any]], folded: Iterable[tuple[str, Any]]
) -> tuple[int, Difference | None]:
    expected: Mapping[str, Any] = dict(folded)
    found = dict(stored)
    keys = sorted((expected.keys() | found.keys()) - _OF_RUNNER)
    for key in keys:
        if found.get(key) != expected.get(key):
            return len(keys), Difference(partition, key, found.get(key), expected.get(key))
    return len(keys), None


def _canonical(value: Any) -> str:
    return repr(sorted(value.items())) if isinstance(value, dict) else repr(value)
