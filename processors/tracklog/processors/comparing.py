"""What a projection has in Redis against the log: folded afresh in memory, and compared key by key (DESIGN §10)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final, NamedTuple

from tracklog.infra.clock import Clock
from tracklog.infra.log.port import Log
from tracklog.infra.settings_sections import Settings
from tracklog.processors import trajectories
from tracklog.processors.checkpoints import CLOCK
from tracklog.processors.memory_store import MemoryStore
from tracklog.processors.parked import PARKED, RETRY
from tracklog.processors.partial import PARTIAL, Partial, partial_of
from tracklog.processors.redis_store import RedisStore
from tracklog.processors.refolding import Refold
from tracklog.processors.running import AnyProcessor
from tracklog.processors.warm_log import SIZES_KEY, TOTALS_KEY, kept_key, log_key

_OF_RUNNER: Final = frozenset({CLOCK, PARKED, PARTIAL, RETRY})
_OF_TRAJECTORIES: Final = frozenset({CLOCK, PARTIAL, SIZES_KEY, TOTALS_KEY})


def is_compared(name: str, key: str) -> bool:
    """What is parked or partial, and the time of the log, are the runner's. The records that trajectories keep leave by
    the clock of Redis, and say of themselves by the hash chain whether they are those of the log."""
    if name == trajectories.NAME:
        return key not in _OF_TRAJECTORIES and not key.startswith((log_key(""), kept_key("")))
    return key not in _OF_RUNNER


class Difference(NamedTuple):
    """The first key that differs. None: not there."""

    partition: int
    key: str
    stored: Any
    folded: Any


class Compared(NamedTuple):
    """`positions` up to which both were folded, by partition. `partial`: trajectories of which the log has no beginning
    any more, so that what was folded afresh has nothing of them."""

    positions: dict[int, int]
    keys: int
    difference: Difference | None
    partial: Partial = Partial()


def compare(
    processor: AnyProcessor,
    store: RedisStore,
    log: Log,
    settings: Settings,
    *,
    partitions: int,
    clock: Clock,
    progress: Callable[[int], object] = lambda _: None,
) -> Compared:
    """Raises StoreConflict when the store moves faster than it is folded. `progress` is told of records folded."""
    positions: dict[int, int] = {}
    keys = 0
    begun = list[tuple[int, list[str]]]()
    for partition in range(partitions):
        memory = MemoryStore(store.keys, source=store.source)
        fresh = Refold(processor, memory, log, settings, partitions=partitions, clock=clock, progress=progress)
        found = fresh.beside(store, partition, partial(_looked, store, memory, partition))
        positions[partition] = found.position
        keys += found.keys
        names = memory.get(partition, PARTIAL) or {}
        begun.append((len(names), [one.decode() for one in sorted(names)]))
        if found.difference is not None:
            return Compared(positions, keys, found.difference, partial_of(begun))
    return Compared(positions, keys, None, partial_of(begun))


def digest(name: str, content: Iterable[tuple[str, Any]]) -> str:
    """One hash of all keys of a projection that are compared, in their order: equal for equal content."""
    running = hashlib.sha256()
    for key, value in content:
        if is_compared(name, key):
            running.update(f"{key}\0{_canonical(value)}\n".encode())
    return running.hexdigest()


class _Looked(NamedTuple):
    """One partition: where both were, how many keys, and the first that differs."""

    position: int
    keys: int
    difference: Difference | None


def _looked(stored: RedisStore, folded: MemoryStore, partition: int, position: int) -> _Looked:
    expected, found = dict(folded.content(partition)), dict(stored.content(partition))
    name = stored.keys.name
    keys = sorted(key for key in expected.keys() | found.keys() if is_compared(name, key))
    for key in keys:
        if found.get(key) != expected.get(key):
            return _Looked(position, len(keys), Difference(partition, key, found.get(key), expected.get(key)))
    return _Looked(position, len(keys), None)


def _canonical(value: Any) -> str:
    return repr(sorted(value.items())) if isinstance(value, dict) else repr(value)
