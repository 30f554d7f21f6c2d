"""A projection: one record processor folded into the store."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Generic, TypeVar

from tracklog.infra.log.port import Record
from tracklog.processors.checkpoints import Checkpoints
from tracklog.processors.leaving import ENDED, LEAVE_MAX, Crowd, ended_keys
from tracklog.processors.place import FIELD, Place, place_of
from tracklog.processors.projection_folding import Change, Gone, ProjectionFolding, Stored, place_key
from tracklog.processors.record_processor import RecordProcessor
from tracklog.processors.state_cache import StateCache
from tracklog.processors.store import Store
from tracklog.processors.writes import Write, own_fields

S = TypeVar("S")

TENANTS_CACHED_MAX: Final = 10_000
"""Tenants of which it is known, without asking, how many of their trajectories have ended."""
_NONE_MS: Final = 2**53
"""Later than any append."""


class Projection(Generic[S]):
    """See `Member`. `loaded` counts states that were read from the store."""

    def __init__(self, processor: RecordProcessor[S], store: Store, *, partitions: int, cached_max: int) -> None:
        self.processor = processor
        self._store = store
        self._cache: StateCache[S] = StateCache(cached_max)
        self._crowds: StateCache[int] = StateCache(TENANTS_CACHED_MAX)
        self._oldest_ms: dict[int, int] = {}
        self._checkpoints = Checkpoints(store, partitions)
        self.loaded = 0

    @property
    def reads(self) -> frozenset[str] | None:
        return self.processor.reads

    def restore(self, partition: int) -> int:
        return self._checkpoints.restore(partition)

    def forget(self, partition: int) -> None:
        self._checkpoints.forget(partition)
        self._cache.forget(partition)
        self._crowds.forget(partition)
        self._oldest_ms.pop(partition, None)

    def begin(self, partition: int, records: Sequence[Record]) -> ProjectionFolding[S]:
        expected = self._checkpoints.expected(partition)
        start = 0 if expected is None else expected.position
        keys = dict.fromkeys(r.key for r in records if r.key is not None and r.offset >= start)
        stored = self._stored(partition, [key.decode(errors="replace") for key in keys])
        return ProjectionFolding(self, partition, start, len(records), stored)

    def _stored(self, partition: int, ids: Sequence[str]) -> Stored[S]:
        """States as the store holds them, from memory where they are there; None for new trajectories. And places of
        those that have left.

        Asked for by record key, which is the trajectory id of every record that decodes: one round trip for all.
        """
        states = {one: self._cache.get(partition, one) for one in ids}
        missing = [one for one, state in states.items() if state is None]
        states |= self.load(partition, missing)
        places = dict[str, Place]()
        unknown = [one for one in missing if states[one] is None]
        if self.processor.leaving is not None and unknown:
            found = self._hashes(partition, [place_key(one) for one in unknown])
            places = {one: place_of(fields[FIELD]) for one, fields in zip(unknown, found, strict=True) if fields}
        return Stored(states, places)

    def load(self, partition: int, ids: Sequence[str]) -> dict[str, S | None]:
        """From the store."""
        states: dict[str, S | None] = {}
        for one, fields in zip(ids, self._hashes(partition, [own_fields(one) for one in ids]), strict=True):
            states[one] = self.processor.load(one, fields) if fields else None
            self.loaded += bool(fields)
        return states

    def _hashes(self, partition: int, keys: Sequence[str]) -> list[Mapping[bytes, bytes]]:
        return self._store.hashes(partition, self._checkpoints.expected(partition), keys)

    # What leaves.

    def log_ms(self, partition: int) -> int:
        return self._checkpoints.log_ms(partition)

    def crowd(self, partition: int, tenant: str, records: int, count_max: int) -> Crowd:
        """The ended ones of a tenant, for a batch of so many records: each may end one and move one."""
        known = self._crowds.get(partition, tenant)
        if known is not None and known + records <= count_max:
            return Crowd.of(known)
        _, key = ended_keys(tenant)
        found = self._store.ranked(partition, self._checkpoints.expected(partition), key, 2 * records)
        return Crowd.of(found.size, found.first)

    def forget_crowd(self, partition: int, tenant: str) -> None:
        """It is counted anew when it is asked for."""
        self._crowds.drop(partition, tenant)

    def due(self, partition: int, until_ms: int) -> tuple[list[str], int]:
        """Ended trajectories whose last append was no later, LEAVE_MAX at most, the oldest first; and no other has an
        earlier one than this."""
        oldest_ms = self._oldest_ms.get(partition, -1)
        if oldest_ms > until_ms:
            return [], oldest_ms
        found = self._store.ranked(partition, self._checkpoints.expected(partition), ENDED, LEAVE_MAX + 1).first
        due = [one for last_ms, one in found if last_ms <= until_ms][:LEAVE_MAX]
        return due, found[len(due)][0] if len(due) < len(found) else _NONE_MS

    def commit(
        self,
        partition: int,
        position: int,
        writes: Sequence[Write],
        changes: Mapping[str, Change[S]],
        gone: Gone | None = None,
    ) -> Callable[[], None]:
        """Stores what a batch changed, and only then remembers it. See `Folding.commit`."""
        sent = self._checkpoints.send(partition, position, writes, None if gone is None else gone.log_ms)

        def stored() -> None:
            sent()
            for trajectory_id, change in changes.items():
                self._cache.put(partition, trajectory_id, change.after)
            if gone is not None:
                self._remember(partition, gone)

        return stored

    def _remember(self, partition: int, gone: Gone) -> None:
        for trajectory_id in gone.moved:
            self._cache.drop(partition, trajectory_id)
        for tenant, crowd in gone.crowds.items():
            self._crowds.put(partition, tenant, crowd.count)
        self._oldest_ms[partition] = gone.oldest_ms
