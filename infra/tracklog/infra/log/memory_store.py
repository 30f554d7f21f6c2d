"""The topics, records and groups of a memory log; shared by every MemoryLog opened under one name."""

from __future__ import annotations

import itertools
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeVar

from tracklog.infra.log.group_member import EmbeddedMember
from tracklog.infra.log.group_table import GroupTable
from tracklog.infra.log.offsets import check_delete, check_partition, check_position
from tracklog.infra.log.port import Bounds, Headers, Position, Record, TopicInfo
from tracklog.infra.log.positions import Positions
from tracklog.schemas.errors import TopicMissing
from tracklog.schemas.topics import TopicSpec, barrier_of

T = TypeVar("T")


@dataclass(slots=True)
class Partition:
    topic: str
    index: int
    first: int = 0
    records: list[Record] = field(default_factory=list)

    @property
    def bounds(self) -> Bounds:
        return Bounds(self.first, self.first + len(self.records))


@dataclass(slots=True)
class Topic:
    spec: TopicSpec
    topic_id: str
    partitions: list[Partition]


class MemoryStore:
    """Thread-safe; `changed` is notified on every append."""

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.changed: Final = threading.Condition(threading.RLock())
        self._topics: dict[str, Topic] = {}
        self._groups: dict[tuple[str, str], MemoryGroup] = {}
        self._members = itertools.count()

    def topic(self, name: str) -> Topic:
        topic = self._topics.get(name)
        if topic is None:
            raise TopicMissing(
                f"the topic {name} is not in memory:{self.name}", hint="create it: tracklog topics apply"
            )
        return topic

    def partition(self, topic: str, partition: int) -> Partition:
        partitions = self.topic(topic).partitions
        check_partition(topic, partition, len(partitions))
        return partitions[partition]

    def bounds(self, topic: str, partition: int) -> Bounds:
        with self.changed:
            return self.partition(topic, partition).bounds

    def offset_at(self, topic: str, partition: int, timestamp_ms: int) -> int:
        with self.changed:
            kept = self.partition(topic, partition)
            return kept.first + bisect_left(kept.records, timestamp_ms, key=lambda record: record.timestamp_ms)

    def store(
        self, partition: Partition, now_ms: int, key: bytes | None, value: bytes | None, headers: Headers
    ) -> Position:
        """Appends one record. Timestamps never fall, so that a time finds an offset."""
        with self.changed:
            if partition.records:
                now_ms = max(now_ms, partition.records[-1].timestamp_ms)
            offset = partition.bounds.end
            partition.records.append(Record(partition.topic, partition.index, offset, now_ms, key, value, headers))
            self.changed.notify_all()
            return Position(partition.index, offset, now_ms)

    def create(self, specs: Iterable[TopicSpec]) -> list[str]:
        created = []
        with self.changed:
            for spec in specs:
                if spec.name not in self._topics:
                    partitions = [Partition(spec.name, index) for index in range(spec.partitions)]
                    topic_id = f"{self.name}-topic-{len(self._topics)}"
                    self._topics[spec.name] = Topic(spec, topic_id, partitions)
                    created.append(spec.name)
        return created

    def describe(self, topic: str) -> TopicInfo:
        found = self.topic(topic)
        return TopicInfo(found.spec, found.topic_id, f"memory-{self.name}", barrier_of(found.spec.config))

    def delete_records(self, topic: str, before: Mapping[int, int]) -> None:
        with self.changed:
            for index, offset in before.items():
                partition = self.partition(topic, index)
                check_delete(topic, index, offset, partition.bounds)
                drop = max(0, offset - partition.first)
                del partition.records[:drop]
                partition.first += drop

    def group(self, group_id: str, topic: str) -> MemoryGroup:
        with self.changed:
            return self._groups.setdefault((group_id, topic), MemoryGroup())

    def new_member_id(self) -> str:
        return f"member-{next(self._members):08d}"


class MemoryReader(Positions):
    """See `Reader`; partitions can be assigned and taken away while it is open (for group members)."""

    def __init__(self, store: MemoryStore, topic: str, starts: Mapping[int, int]) -> None:
        self._store = store
        self._topic = topic
        super().__init__(starts, partial(store.partition, topic))

    def poll(self, max_records: int, timeout_s: float) -> list[Record]:
        with self._store.changed:
            self._store.changed.wait_for(lambda: any(self._waiting(p) for p in self._active()), timeout_s)
            records: list[Record] = []
            for partition in sorted(self._active(), key=lambda p: self._positions[p]):
                records += self._take(partition, max_records - len(records))
            return records

    def _waiting(self, partition: int) -> bool:
        """A position out of range counts as waiting: `_take` then says so."""
        return self._positions[partition] != self._store.bounds(self._topic, partition).end

    def _take(self, partition: int, limit: int) -> list[Record]:
        kept = self._store.partition(self._topic, partition)
        start = self._positions[partition]
        check_position(self._topic, partition, start, kept.bounds)
        records = kept.records[start - kept.first : start - kept.first + limit]
        self._positions[partition] = start + len(records)
        return records


class MemoryGroup:
    """The table of one group; its members are kept alive by being in this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._table = GroupTable()
        self._members: dict[str, EmbeddedMember] = {}

    def read(self) -> GroupTable:
        with self._lock:
            return self._table.copy()

    def update(self, change: Callable[[GroupTable], T]) -> T:
        with self._lock:
            now_s = time.monotonic()
            for member_id, member in self._members.items():
                if member_id in self._table.heartbeats and member.alive():
                    self._table.heartbeats[member_id] = now_s
            return change(self._table)

    def keep_alive(self, member: EmbeddedMember) -> None:
        with self._lock:
            self._members[member.member_id] = member

    def forget(self, member: EmbeddedMember) -> None:
        with self._lock:
            self._members.pop(member.member_id, None)
