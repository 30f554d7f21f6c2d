"""The positions of one projection, as its owner left them in the store."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from tracklog.processors.store import Checkpoint, Store
from tracklog.processors.writes import SetFields, Write
from tracklog.schemas.errors import SettingsError

CLOCK: Final = "clock"
"""Hash `ms`: the time of the log at the position, where something leaves by it."""
_MS: Final = b"ms"


class Checkpoints:
    """By partition: what every step is guarded by."""

    def __init__(self, store: Store, partitions: int) -> None:
        self._store = store
        self._partitions = partitions
        self._held: dict[int, Checkpoint | None] = {}
        self._log_ms: dict[int, int] = {}

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
        self._log_ms.pop(partition, None)
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
        self._log_ms.pop(partition, None)

    def expected(self, partition: int) -> Checkpoint | None:
        return self._held.get(partition)

    def log_ms(self, partition: int) -> int:
        """The time of the log at the position: the latest append before it, in milliseconds since 1970; -1 for none.
        Append times may go back a little where another broker leads; this one does not."""
        known = self._log_ms.get(partition)
        if known is None:
            (fields,) = self._store.hashes(partition, self.expected(partition), [CLOCK])
            known = self._log_ms[partition] = int(fields.get(_MS, b"-1"))
        return known

    def send(
        self, partition: int, position: int, writes: Iterable[Write], log_ms: int | None = None
    ) -> Callable[[], None]:
        """One guarded step; what is given back waits for it. Never back: a position behind the stored one is confirmed
        where it is. `log_ms`: the time of the log there, where something leaves by it."""
        expected = self._held.get(partition)
        position = position if expected is None else max(position, expected.position)
        if log_ms is not None and log_ms > self.log_ms(partition):
            writes = [*writes, SetFields(CLOCK, {_MS.decode(): log_ms})]
        sent = self._store.send(partition, expected, position, writes)

        def stored() -> None:
            self._held[partition] = sent()
            if log_ms is not None:
                self._log_ms[partition] = max(log_ms, self._log_ms[partition])

        return stored
