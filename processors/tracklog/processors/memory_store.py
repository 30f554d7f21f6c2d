"""A store in memory: what Redis would hold after the writes of a processor. To test it, and to compare with Redis."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import nsmallest
from typing import Any, Final

import orjson

from tracklog.processors.parked import RETRY
from tracklog.processors.store import Checkpoint, Ranked, Sent
from tracklog.processors.store_keys import StoreKeys
from tracklog.processors.writes import (
    Add,
    Clear,
    Extend,
    Push,
    PutJson,
    Rank,
    Remove,
    Scalar,
    SetFields,
    Unrank,
    Unset,
    Write,
)
from tracklog.schemas.errors import InvalidProcessor, StoreConflict

Content = Any
"""Of a key: bytes (string), dict of bytes to bytes (hash), of bytes to float (sorted set), list of entries (stream:
id and fields)."""
_INCARNATION: Final = "memory"


class MemoryStore:
    """See `Store`."""

    def __init__(self, keys: StoreKeys, *, source: str = "memory") -> None:
        self.keys = keys
        self.source = source
        self._checkpoints: dict[int, Checkpoint] = {}
        self._content: dict[int, dict[str, Content]] = {}

    def refresh(self) -> None:
        """There is one build."""

    def checkpoint(self, partition: int) -> Checkpoint | None:
        return self._checkpoints.get(partition)

    def hashes(self, partition: int, expected: Checkpoint | None, keys: Sequence[str]) -> list[Mapping[bytes, bytes]]:
        self._check(partition, expected)
        held = self._held(partition)
        return [dict(held.get(key, {})) for key in keys]

    def ranked(
        self, partition: int, expected: Checkpoint | None, key: str, count_max: int, *, score_max: int | None = None
    ) -> Ranked:
        self._check(partition, expected)
        held = self._held(partition).get(key, {})
        fit = ((score, member) for member, score in held.items() if score_max is None or score <= score_max)
        return Ranked(len(held), [(round(score), member.decode()) for score, member in nsmallest(count_max, fit)])

    def commit(self, partition: int, expected: Checkpoint | None, position: int, writes: Iterable[Write]) -> Checkpoint:
        self._check(partition, expected)
        held = self._held(partition)
        for write in writes:
            _apply(held, write)
        moved = self._checkpoints[partition] = Checkpoint(_INCARNATION, position, self.source)
        return moved

    def send(self, partition: int, expected: Checkpoint | None, position: int, writes: Iterable[Write]) -> Sent:
        return lambda: self.commit(partition, expected, position, writes)

    def publish(self, partitions: int, *, replace: bool = False) -> int:
        """Nobody reads here by a pointer."""
        return partitions

    def declare(self, layout: str) -> str:
        return layout

    def ask_retry(self, partition: int, trajectory_id: str) -> None:
        self._held(partition).setdefault(RETRY, {})[trajectory_id.encode()] = b""

    def wipe(self) -> None:
        """Forgets everything, as a server without its disk."""
        self._checkpoints, self._content = {}, {}

    def content(self, partition: int) -> Iterator[tuple[str, Content]]:
        """Every key of a partition but the checkpoint, in order."""
        held = self._held(partition)
        for key in sorted(held):
            yield key, held[key]

    def get(self, partition: int, key: str) -> Any:
        return self._held(partition).get(key)

    def _check(self, partition: int, expected: Checkpoint | None) -> None:
        if self._checkpoints.get(partition) != expected:
            raise StoreConflict(f"partition {partition} moved under its writer")

    def _held(self, partition: int) -> dict[str, Content]:
        return self._content.setdefault(partition, {})


def _apply(held: dict[str, Content], write: Write) -> None:
    match write:
        case SetFields(key, fields):
            held.setdefault(key, {}).update({name.encode(): _bytes(value) for name, value in fields.items()})
        case Unset(key, names):
            _drop(held, key, names)
        case Add(key, amounts):
            counters = held.setdefault(key, {})
            for name, amount in amounts.items():
                counters[name.encode()] = b"%d" % (int(counters.get(name.encode(), 0)) + amount)
        case Rank(keys, member, score):
            for key in keys:
                held.setdefault(key, {})[member.encode()] = float(score)
        case Unrank(keys, member):
            for key in keys:
                _drop(held, key, [member])
        case PutJson(key, value):
            held[key] = orjson.dumps(value)
        case Extend(key, data):
            held[key] = held.get(key, b"") + data
        case Clear(key, sizes, member):
            held.pop(key, None)
            _drop(held, sizes, [member])
        case Push():
            _push(held, write)
        case Remove(keys):
            for key in keys:
                held.pop(key, None)
        case _:
            raise InvalidProcessor(f"{write!r} is no write that a processor may make")


def _drop(held: dict[str, Content], key: str, names: Iterable[str]) -> None:
    fields = held.get(key, {})
    for name in names:
        fields.pop(name.encode(), None)
    if not fields:
        held.pop(key, None)


def _push(held: dict[str, Content], write: Push) -> None:
    entries: list[tuple[tuple[int, int], dict[bytes, bytes]]] = held.setdefault(write.key, [])
    number, at = write.offset + 1, 0
    if entries:
        newest, count = entries[-1][0]
        if newest >= number:
            number, at = newest, count + 1
    entries.append(((number, at), {name.encode(): _bytes(value) for name, value in write.fields.items()}))
    del entries[: -write.count_max]


def _bytes(value: Scalar) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()
