"""A projection: one processor folded into the store, as the owner of partitions (DESIGN §6, §10).

The order inside a batch is what makes it safe: decode and fold; quarantine what is not ours and wait for the reports;
write states and position in one guarded step; only then remember the new states.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from tracklog.infra.log.partitioner import why_stray
from tracklog.infra.log.port import Record
from tracklog.processors.processor import Processor, Seen
from tracklog.processors.quarantine import Poison, Quarantine
from tracklog.processors.redis_store import Checkpoint, RedisStore
from tracklog.processors.state_cache import StateCache
from tracklog.processors.writes import Write
from tracklog.schemas.codec import decode_event
from tracklog.schemas.errors import ForeignRecord, SettingsError

S = TypeVar("S")


@dataclass(slots=True)
class Counts:
    """What this process has done so far. A batch that was taken up twice counts twice."""

    records: int = 0
    foreign: int = 0
    batches: int = 0
    loaded: int = 0


@dataclass(slots=True)
class _Change(Generic[S]):
    """One trajectory in a batch. `before` is what the store holds: None for nothing."""

    before: S | None
    after: S
    records: list[Record]


class _Batch(NamedTuple, Generic[S]):
    changes: dict[str, _Change[S]]
    poison: list[Poison]


class Projection(Generic[S]):
    """See `Owner`. Without `quarantine`, records that are not ours are only counted: one projection of an
    installation puts them away, the others pass them by."""

    def __init__(
        self,
        processor: Processor[S],
        store: RedisStore,
        *,
        partitions: int,
        quarantine: Quarantine | None,
        cached_max: int,
    ) -> None:
        self._processor = processor
        self._store = store
        self._partitions = partitions
        self._quarantine = quarantine
        self._cache: StateCache[S] = StateCache(cached_max)
        self._checkpoints: dict[int, Checkpoint | None] = {}
        self.counts = Counts()

    def restore(self, partition: int) -> int:
        """Raises SettingsError when the store holds what was folded from another log."""
        self._store.publish(self._partitions)
        stored = self._checkpoints[partition] = self._store.checkpoint(partition)
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
        self._checkpoints.pop(partition, None)
        self._cache.forget(partition)

    def fold(self, partition: int, records: Sequence[Record], position: int) -> None:
        expected = self._checkpoints.get(partition)
        if expected is not None and records and records[0].offset < expected.position:
            records = [record for record in records if record.offset >= expected.position]
        batch = self._apply(records, self._stored(partition, expected, records))
        if batch.poison and self._quarantine is not None:
            self._quarantine.put(partition, batch.poison)
        writes = (write for change in batch.changes.values() for write in self._writes(change))
        self._checkpoints[partition] = self._store.commit(partition, expected, position, writes)
        self._remember(partition, batch, len(records))

    def _stored(self, partition: int, expected: Checkpoint | None, records: Sequence[Record]) -> dict[str, S | None]:
        """The states as the store holds them, from memory where they are there; None for new trajectories.

        Asked for by record key, which is the trajectory id of every record that decodes: one round trip for all.
        """
        keys = {record.key for record in records if record.key is not None}
        ids = [key.decode(errors="replace") for key in keys]
        states = {one: self._cache.get(partition, one) for one in ids}
        missing = [one for one, state in states.items() if state is None]
        for one, fields in zip(missing, self._store.load(partition, expected, missing), strict=True):
            if fields:
                states[one] = self._processor.load(one, fields)
                self.counts.loaded += 1
        return states

    def _apply(self, records: Sequence[Record], stored: Mapping[str, S | None]) -> _Batch[S]:
        """Decodes and folds one record at a time: decoded events are large, and none outlives its turn."""
        batch: _Batch[S] = _Batch({}, [])
        reads, apply = self._processor.reads, self._processor.apply
        for record in records:
            stray = why_stray(record.key, record.partition, self._partitions)
            if stray:
                batch.poison.append(Poison(record, stray))
                continue
            try:
                event = decode_event(record.key, record.value, record.headers)
            except ForeignRecord as error:
                batch.poison.append(Poison(record, error.message))
                continue
            if reads is not None and event.name not in reads:
                continue
            trajectory_id = event.envelope.trajectory_id
            change = batch.changes.get(trajectory_id)
            if change is None:
                before = stored[trajectory_id]
                state = before if before is not None else self._processor.start(trajectory_id)
                change = batch.changes[trajectory_id] = _Change(before, state, [])
            change.after = apply(change.after, Seen(event, record))
            change.records.append(record)
        return batch

    def _writes(self, change: _Change[S]) -> Iterable[Write]:
        return self._processor.writes(change.before, change.after, change.records)

    def _remember(self, partition: int, batch: _Batch[S], record_count: int) -> None:
        for trajectory_id, change in batch.changes.items():
            self._cache.put(partition, trajectory_id, change.after)
        if self._quarantine is not None:
            self._quarantine.moved(partition)
        self.counts.records += record_count
        self.counts.foreign += len(batch.poison)
        self.counts.batches += 1
