"""A projection: one processor folded into the store, as the owner of partitions (DESIGN §6, §10).

The order inside a batch is what makes it safe: decode; quarantine what is not ours and wait for the reports; fold;
write states and position in one guarded step; only then remember the new states.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

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
        seen = self._decode(partition, records)
        before = self._stored(partition, list(seen))
        after: dict[str, S] = {}
        writes: list[Write] = []
        for trajectory_id, shown in seen.items():
            state = after[trajectory_id] = self._apply(trajectory_id, before[trajectory_id], shown)
            writes.extend(self._processor.writes(before[trajectory_id], state, shown))
        self._checkpoints[partition] = self._store.commit(partition, expected, position, writes)
        self._remember(partition, after, records)

    def _decode(self, partition: int, records: Sequence[Record]) -> dict[str, list[Seen]]:
        reads = self._processor.reads
        seen: dict[str, list[Seen]] = {}
        poison: list[Poison] = []
        for record in records:
            try:
                event = decode_event(record.key, record.value, record.headers)
            except ForeignRecord as error:
                poison.append(Poison(record, error.message))
                continue
            if reads is None or event.name in reads:
                seen.setdefault(event.envelope.trajectory_id, []).append(Seen(event, record))
        if poison:
            self.counts.foreign += len(poison)
            if self._quarantine is not None:
                self._quarantine.put(partition, poison)
        return seen

    def _stored(self, partition: int, trajectory_ids: Sequence[str]) -> dict[str, S | None]:
        """The states as the store holds them, from memory where they are there; None for new trajectories."""
        states = {one: self._cache.get(partition, one) for one in trajectory_ids}
        missing = [one for one, state in states.items() if state is None]
        for one, fields in zip(missing, self._store.load(partition, missing), strict=True):
            if fields:
                states[one] = self._processor.load(one, fields)
                self.counts.loaded += 1
        return states

    def _apply(self, trajectory_id: str, before: S | None, shown: Sequence[Seen]) -> S:
        state = self._processor.start(trajectory_id) if before is None else before
        for seen in shown:
            state = self._processor.apply(state, seen)
        return state

    def _remember(self, partition: int, after: dict[str, S], records: Sequence[Record]) -> None:
        for trajectory_id, state in after.items():
            self._cache.put(partition, trajectory_id, state)
        if self._quarantine is not None:
            self._quarantine.moved(partition)
        self.counts.records += len(records)
        self.counts.batches += 1
