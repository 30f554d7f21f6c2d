"""A log whose events begin in the cold tier: one range, whatever of it the log itself still has.

Where the beginning of the events was trimmed, and the table has all of it, a partition begins at what the table has
first and ends where the log ends. Below the first offset that the log keeps, records come from the table. Nobody above
sees where one ends and the other begins, so verdicts, starts and claims are those of a log that was never trimmed. All
other topics, and everything that is written, are the log's own.

A table of another log, or none, is as if there were none. One that cannot be read now is an outage of the log: a range
must not have a beginning at one time and none at another.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from tracklog.infra.log.port import (
    Bounds,
    Delivered,
    GroupListener,
    GroupMember,
    Headers,
    Log,
    Reader,
    Record,
    TopicInfo,
)
from tracklog.schemas.errors import ColdMismatch, ColdMissing, OffsetTrimmed
from tracklog.schemas.topics import TopicSpec

if TYPE_CHECKING:
    from tracklog.infra.cold.cold_log import ColdLog

__all__ = ["JoinedLog"]

Opener = Callable[[], "ColdLog | None"]
"""None where there is no cold tier that could be read."""


class Seam(NamedTuple):
    """Of one partition: the table begins at `first` and has everything below `end`; the log keeps from `kept` on."""

    first: int
    end: int
    kept: int

    def cold(self, offset: int) -> bool:
        """Whether the record at this offset comes from the table."""
        return self.first <= offset < self.kept


class JoinedLog:
    """See the module, and `Log`."""

    def __init__(self, hot: Log, topic: str, opener: Opener) -> None:
        self.hot: Final = hot
        self._topic = topic
        self._opener = opener
        self._lock = threading.Lock()
        self._cold: ColdLog | None = None
        self._looked = False
        self._table: dict[int, Bounds] = {}
        self._seams: dict[int, Seam] = {}
        """As they were last found; what the log keeps only begins later than that."""

    @property
    def url(self) -> str:
        return self.hot.url

    def append(self, topic: str, key: bytes, value: bytes, headers: Headers, delivered: Delivered) -> None:
        self.hot.append(topic, key, value, headers, delivered)

    def flush(self, timeout_s: float) -> int:
        return self.hot.flush(timeout_s)

    def partition_count(self, topic: str) -> int:
        return self.hot.partition_count(topic)

    def bounds(self, topic: str, partition: int) -> Bounds:
        bounds = self.hot.bounds(topic, partition)
        if topic != self._topic or bounds.first == 0:
            return bounds
        seam = self.seam(partition, bounds)
        return bounds if seam is None else Bounds(seam.first, bounds.end)

    def ends(self, topic: str, partitions: Collection[int]) -> dict[int, int]:
        return self.hot.ends(topic, partitions)

    def offset_at(self, topic: str, partition: int, timestamp_ms: int) -> int:
        found = self.hot.offset_at(topic, partition, timestamp_ms)
        if topic != self._topic:
            return found
        bounds = self.hot.bounds(topic, partition)
        seam = self.seam(partition, bounds) if found <= bounds.first and bounds.first else None
        if seam is None:
            return found
        assert self._cold is not None
        return min(found, self._cold.offset_at(topic, partition, timestamp_ms))

    def first_with(self, topic: str, partition: int, keys: Collection[bytes]) -> int:
        """The first offset at which a record under one of these keys may lie: of what was trimmed, the table knows."""
        seam = self._seams.get(partition) if topic == self._topic else None
        if seam is None:  # whoever asks has asked for the bounds just now
            return 0
        assert self._cold is not None
        return self._cold.first_with(topic, partition, keys, seam.kept)

    def reader(self, topic: str, starts: Mapping[int, int], *, follows: bool = False) -> Reader:
        if topic != self._topic:
            return self.hot.reader(topic, starts, follows=follows)
        return JoinedReader(self, topic, starts, follows=follows)

    def group(self, group_id: str, topic: str, listener: GroupListener) -> GroupMember:
        if topic != self._topic:
            return self.hot.group(group_id, topic, listener)
        return JoinedMember(self, group_id, topic, listener)

    def describe(self, topic: str) -> TopicInfo:
        return self.hot.describe(topic)

    def create(self, specs: Iterable[TopicSpec]) -> list[str]:
        return self.hot.create(specs)

    def delete_records(self, topic: str, before: Mapping[int, int]) -> None:
        self.hot.delete_records(topic, before)

    def ping(self, timeout_s: float) -> None:
        self.hot.ping(timeout_s)

    def close(self) -> None:
        self.hot.close()

    def seam(self, partition: int, kept: Bounds) -> Seam | None:
        """Where the table joins what the log keeps; None where it does not reach so far, or nothing is trimmed.

        Raises LogUnavailable for a table that is there and cannot be read.
        """
        if kept.first == 0:
            return None
        with self._lock:
            cold = self._opened()
            if cold is None:
                return None
            table = self._table.get(partition)
            if table is None or table.end < kept.first:
                table = self._table[partition] = cold.bounds(self._topic, partition)
        if not table.first < kept.first <= table.end:
            return None
        seam = self._seams[partition] = Seam(table.first, table.end, kept.first)
        return seam

    def cold_records(self, partition: int, start: int, seam: Seam) -> Iterator[Record]:
        assert self._cold is not None
        return self._cold.records(self._topic, partition, start, seam.kept)

    def _opened(self) -> ColdLog | None:
        """The table, if it is of this very topic."""
        if self._looked:
            return self._cold
        cold = self._opener()
        if cold is not None:
            try:
                info, own = cold.describe(self._topic), self.hot.describe(self._topic)
            except (ColdMissing, ColdMismatch):
                return None  # it may come: the next one looks again
            if (info.cluster_id, info.topic_id) == (own.cluster_id, own.topic_id):
                self._cold = cold
        self._looked = True
        return self._cold


class _Behind:
    """Partitions whose position is in the table, and the records from there on."""

    def __init__(self, log: JoinedLog, topic: str) -> None:
        self._log = log
        self._topic = topic
        self._positions: dict[int, int] = {}
        self._seams: dict[int, Seam] = {}
        self._open: dict[int, Iterator[Record]] = {}

    def __contains__(self, partition: int) -> bool:
        return partition in self._positions

    def __bool__(self) -> bool:
        return bool(self._positions)

    def __iter__(self) -> Iterator[int]:
        return iter(tuple(self._positions))

    def position(self, partition: int) -> int:
        return self._positions[partition]

    def take_over(self, partition: int, offset: int) -> int | None:
        """Where the log is to go on when the table is through; None for an offset that is the log's."""
        self.drop(partition)
        kept = self._log.hot.bounds(self._topic, partition)
        seam = self._log.seam(partition, kept) if offset < kept.first else None
        if seam is None or not seam.cold(offset):
            return None
        self._positions[partition], self._seams[partition] = offset, seam
        return seam.kept

    def drop(self, partition: int) -> None:
        for held in (self._positions, self._seams, self._open):
            held.pop(partition, None)

    def poll(self, max_records: int) -> tuple[list[Record], dict[int, int]]:
        """Records, and the partitions that are through with the offsets at which the log goes on."""
        records: list[Record] = []
        through: dict[int, int] = {}
        for partition in self:
            limit = max_records - len(records)
            if limit <= 0:
                break
            found = self._take(partition, limit)
            records += found
            if len(found) < limit:
                through[partition] = self._seams[partition].kept
                self.drop(partition)
        return records, through

    def _take(self, partition: int, limit: int) -> list[Record]:
        source = self._open.get(partition)
        if source is None:
            start, seam = self._positions[partition], self._seams[partition]
            source = self._open[partition] = self._log.cold_records(partition, start, seam)
        records: list[Record] = []
        try:
            records += itertools.islice(source, limit)
        except Exception:
            del self._open[partition]  # it is read again from the position, not taken for ended
            raise
        if records:
            self._positions[partition] = records[-1].offset + 1
        return records


class JoinedReader:
    """See `Reader`. While a partition is read from the table, the others wait."""

    def __init__(self, log: JoinedLog, topic: str, starts: Mapping[int, int], *, follows: bool = False) -> None:
        self._behind = _Behind(log, topic)
        own = {}
        for partition, offset in starts.items():
            goes_on = self._behind.take_over(partition, offset)
            own[partition] = offset if goes_on is None else goes_on
        self._hot = log.hot.reader(topic, own, follows=follows)
        self._partitions = tuple(starts)

    def poll(self, max_records: int, timeout_s: float) -> list[Record]:
        if self._behind:
            records, through = self._behind.poll(max_records)
            for partition, offset in through.items():
                self._hot.seek(partition, offset)
            if records or self._behind:
                return records
        try:
            return self._hot.poll(max_records, timeout_s)
        except OffsetTrimmed:
            if not self._fall_behind():
                raise
            return []

    def _fall_behind(self) -> bool:
        """What was trimmed under a position is in the table."""
        behind = False
        for partition in self._partitions:
            if self._behind.take_over(partition, self._hot.position(partition)) is not None:
                behind = True
        return behind

    def position(self, partition: int) -> int:
        return self._behind.position(partition) if partition in self._behind else self._hot.position(partition)

    def seek(self, partition: int, offset: int) -> None:
        goes_on = self._behind.take_over(partition, offset)
        self._hot.seek(partition, offset if goes_on is None else goes_on)

    def close(self) -> None:
        self._hot.close()


class JoinedMember:
    """See `GroupMember`. What is read from the table is paused in the log meanwhile."""

    def __init__(self, log: JoinedLog, group_id: str, topic: str, listener: GroupListener) -> None:
        self._behind = _Behind(log, topic)
        self._owned: set[int] = set()
        self._held: set[int] = set()
        """Paused by whoever polls: nothing of them is given out."""
        self._hot = log.hot.group(group_id, topic, _Listener(self, listener))

    def poll(self, max_records: int, timeout_s: float) -> list[Record]:
        try:
            records = self._hot.poll(max_records, 0.0 if self._behind else timeout_s)
        except OffsetTrimmed:
            if not self._fall_behind():
                raise
            records = []
        if not self._behind:
            return records
        self._hot.pause(list(self._behind))
        records = [record for record in records if record.partition not in self._behind]
        if len(records) < max_records and not self._held.intersection(self._behind):
            found, through = self._behind.poll(max_records - len(records))
            records += found
            for partition, offset in through.items():
                self._go_on(partition, offset)
        return records

    def _fall_behind(self) -> bool:
        found = [p for p in sorted(self._owned) if self._behind.take_over(p, self._hot.position(p)) is not None]
        return bool(found)

    def _go_on(self, partition: int, offset: int) -> None:
        self._hot.seek(partition, offset)
        if partition not in self._held:
            self._hot.resume([partition])

    def position(self, partition: int) -> int:
        return self._behind.position(partition) if partition in self._behind else self._hot.position(partition)

    def seek(self, partition: int, offset: int) -> None:
        was_behind = partition in self._behind
        goes_on = self._behind.take_over(partition, offset)
        if goes_on is None:
            self._hot.seek(partition, offset)
            if was_behind and partition not in self._held:
                self._hot.resume([partition])
        else:
            self._hot.pause([partition])

    def commit(self, positions: Mapping[int, int]) -> None:
        self._hot.commit(positions)

    def committed(self, partitions: Sequence[int]) -> Mapping[int, int | None]:
        return self._hot.committed(partitions)

    def pause(self, partitions: Sequence[int]) -> None:
        self._held.update(partitions)
        self._hot.pause(partitions)

    def resume(self, partitions: Sequence[int]) -> None:
        self._held.difference_update(partitions)
        self._hot.resume([one for one in partitions if one not in self._behind])

    def close(self) -> None:
        self._hot.close()

    def assigned(self, starts: Mapping[int, int]) -> Mapping[int, int]:
        """What the log is to be asked for, given where the owner begins."""
        own = {}
        for partition, offset in starts.items():
            self._owned.add(partition)
            goes_on = self._behind.take_over(partition, offset)
            own[partition] = offset if goes_on is None else goes_on
        return own

    def gone(self, partitions: Sequence[int]) -> None:
        for partition in partitions:
            self._owned.discard(partition)
            self._held.discard(partition)
            self._behind.drop(partition)


class _Listener:
    """Between the log's member and the owner: where the owner begins in the table, the log begins behind it."""

    def __init__(self, member: JoinedMember, listener: GroupListener) -> None:
        self._member = member
        self._listener = listener

    def assigned(self, partitions: Sequence[int]) -> Mapping[int, int]:
        return self._member.assigned(self._listener.assigned(partitions))

    def revoked(self, partitions: Sequence[int]) -> None:
        self._listener.revoked(partitions)
        self._member.gone(partitions)

    def lost(self, partitions: Sequence[int]) -> None:
        self._member.gone(partitions)
        self._listener.lost(partitions)
