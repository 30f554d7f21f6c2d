"""The positions of one projection, as its owner left them in the store."""

from __future__ import annotations

from collections.abc import Iterable

from tracklog.processors.store import Checkpoint, Store
from tracklog.processors.writes import Write
from tracklog.schemas.errors import SettingsError


class Checkpoints:
    """By partition: what every step is guarded by."""

    def __init__(self, store: Store, partitions: int) -> None:
        self._store = store
        self._partitions = partitions
        self._held: dict[int, Checkpoint | None] = {}

    def restore(self, partition: int) -> int:
        """The stored position, 0 for nothing. Raises SettingsError when the store holds what was folded from another
        log, or from this one before it was given another number of partitions."""
        self._store.refresh()
        told = self._store.publish(self._partitions)
        if told != self._partitions:
            raise SettingsError(
                f"{self._store.keys.name} was folded from {told} partitions, and the topic has {self._partitions}",
                hint="partitions are for life: a key's events now lie in one and belong into another. Copy the log into"
                " new topics under another prefix",
            )
        stored = self._held[partition] = self._store.checkpoint(partition)
        if stored is None:
            return 0
        if stored.source != self._store.source:
            raise SettingsError(
                f"{self._store.keys.base(partition)}* in Redis was folded from the log {stored.source}, not from"
                f" {self._store.source}",
                hint="two logs cannot share one prefix: set another one, or remove these keys",
            )
        return stored.position

    def forget(self, partition: int) -> None:
        self._held.pop(partition, None)

    def expected(self, partition: int) -> Checkpoint | None:
        return self._held.get(partition)

    def commit(self, partition: int, position: int, writes: Iterable[Write]) -> None:
        """One guarded step. Never back: a position behind the stored one is confirmed where it is."""
        expected = self._held.get(partition)
        position = position if expected is None else max(position, expected.position)
        self._held[partition] = self._store.commit(partition, expected, position, writes)
