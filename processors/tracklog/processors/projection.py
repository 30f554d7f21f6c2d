"""A projection: one record processor folded into the store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from tracklog.infra.log.port import Record
from tracklog.processors.checkpoints import Checkpoints
from tracklog.processors.place import Step
from tracklog.processors.record_processor import RecordProcessor
from tracklog.processors.state_cache import StateCache
from tracklog.processors.store import Store
from tracklog.processors.writes import Write, own_fields

S = TypeVar("S")


@dataclass(slots=True)
class _Change(Generic[S]):
    """One trajectory in a batch. `before` is what the store holds: None for nothing."""

    before: S | None
    after: S
    records: list[Record]


class Projection(Generic[S]):
    """See `Member`. `loaded` counts states that were read from the store."""

    def __init__(self, processor: RecordProcessor[S], store: Store, *, partitions: int, cached_max: int) -> None:
        self._processor = processor
        self._store = store
        self._cache: StateCache[S] = StateCache(cached_max)
        self._checkpoints = Checkpoints(store, partitions)
        self.loaded = 0

    @property
    def reads(self) -> frozenset[str] | None:
        return self._processor.reads

    def restore(self, partition: int) -> int:
        return self._checkpoints.restore(partition)

    def forget(self, partition: int) -> None:
        self._checkpoints.forget(partition)
        self._cache.forget(partition)

    def begin(self, partition: int, records: Sequence[Record]) -> _Folding[S]:
        expected = self._checkpoints.expected(partition)
        start = 0 if expected is None else expected.position
        keys = dict.fromkeys(r.key for r in records if r.key is not None and r.offset >= start)
        stored = self._states(partition, [key.decode(errors="replace") for key in keys])
        return _Folding(self, self._processor, partition, start, stored)

    def _states(self, partition: int, ids: Sequence[str]) -> dict[str, S | None]:
        """As the store holds them, from memory where they are there; None for new trajectories.

        Asked for by record key, which is the trajectory id of every record that decodes: one round trip for all.
        """
        states = {one: self._cache.get(partition, one) for one in ids}
        missing = [one for one, state in states.items() if state is None]
        expected = self._checkpoints.expected(partition)
        found = self._store.hashes(partition, expected, [own_fields(one) for one in missing])
        for one, fields in zip(missing, found, strict=True):
            if fields:
                states[one] = self._processor.load(one, fields)
                self.loaded += 1
        return states

    def commit(self, partition: int, position: int, changes: Mapping[str, _Change[S]]) -> None:
        """Stores what a batch changed."""
        self._checkpoints.commit(partition, position, self._writes(changes.values()))
        for trajectory_id, change in changes.items():
            self._cache.put(partition, trajectory_id, change.after)

    def _writes(self, changes: Iterable[_Change[S]]) -> Iterator[Write]:
        for change in changes:
            yield from self._processor.writes(change.before, change.after, change.records)


class _Folding(Generic[S]):
    """See `Folding`."""

    def __init__(
        self,
        of: Projection[S],
        processor: RecordProcessor[S],
        partition: int,
        start: int,
        stored: Mapping[str, S | None],
    ) -> None:
        self._of = of
        self._processor = processor
        self._reads, self._apply = processor.reads, processor.apply
        self._partition = partition
        self._start = start
        self._stored = stored
        self._changes: dict[str, _Change[S]] = {}

    def see(self, step: Step) -> None:
        seen = step.seen
        if step.offset < self._start or seen is None or (self._reads is not None and step.name not in self._reads):
            return
        trajectory_id = step.trajectory_id
        change = self._changes.get(trajectory_id)
        if change is None:
            before = self._stored[trajectory_id]
            state = before if before is not None else self._processor.start(trajectory_id)
            change = self._changes[trajectory_id] = _Change(before, state, [])
        change.after = self._apply(change.after, seen)
        change.records.append(seen.record)

    def commit(self, position: int) -> None:
        self._of.commit(self._partition, position, self._changes)
