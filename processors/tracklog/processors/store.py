"""What a projection needs of its store: Redis, or memory in tests and for comparing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from tracklog.processors.store_keys import StoreKeys
from tracklog.processors.writes import Write


class Checkpoint(NamedTuple):
    """How far a partition is folded: `position` is the next offset. `incarnation` is drawn when a partition is
    first written, so a store that was wiped and filled again is another one; `source` names the log."""

    incarnation: str
    position: int
    source: str


Sent = Callable[[], Checkpoint]
"""Of a step that was given to the store: waits until it is stored, and gives the checkpoint that it left."""


class Ranked(NamedTuple):
    """Of a sorted set: how many members it has, and the first ones, each behind its score."""

    size: int
    first: list[tuple[int, str]]


class Store(Protocol):
    """One version of one projection. `source` names the topic it is folded from, for good."""

    @property
    def keys(self) -> StoreKeys: ...

    @property
    def source(self) -> str: ...

    def refresh(self) -> None:
        """Turns to the build that is live: the version may have been folded anew beside itself."""

    def checkpoint(self, partition: int) -> Checkpoint | None:
        """What is stored; None for nothing."""

    def hashes(self, partition: int, expected: Checkpoint | None, keys: Sequence[str]) -> list[Mapping[bytes, bytes]]:
        """The fields of hashes, in one round trip; empty for those that are not there. Raises StoreConflict when
        they may be newer than `expected`."""

    def ranked(
        self, partition: int, expected: Checkpoint | None, key: str, count_max: int, *, score_max: int | None = None
    ) -> Ranked:
        """The first members of a sorted set, up to a score. Raises StoreConflict as `hashes` does."""

    def send(self, partition: int, expected: Checkpoint | None, position: int, writes: Iterable[Write]) -> Sent:
        """Writes a batch and moves the position to `position`; all of it, or nothing. The next may be sent
        before it is waited for.

        Waiting raises StoreConflict when the stored checkpoint is not `expected` (None: nothing stored). After
        StoreUnavailable it may have been written: say it again, and a StoreConflict tells that it was.
        """

    def commit(self, partition: int, expected: Checkpoint | None, position: int, writes: Iterable[Write]) -> Checkpoint:
        """The same, and waits."""

    def publish(self, partitions: int, *, replace: bool = False) -> int:
        """Points readers to this version; without `replace` only when they are pointed nowhere. Gives the number of
        partitions that they are told of: without `replace` the one that was said first."""

    def declare(self, layout: str) -> str:
        """Says how this version's keys look; returns what was said first of this version."""
