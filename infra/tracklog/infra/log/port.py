"""The log port: what Tracklog needs from a log, and nothing else (DESIGN §3).

Adapters: `sqlite:PATH`, `kafka://HOST:PORT`, `memory:`. One contract suite (tests/contract) runs over all of
them. Everything that waits takes a bound in seconds; everything that writes ends in exactly one call of
`delivered`, and only a `Position` there means success.

Reading is always read-committed: the end of a partition is its last stable offset.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from tracklog.schemas.errors import AppendError
from tracklog.schemas.topics import Barrier, TopicSpec

Headers = tuple[tuple[str, bytes], ...]


class Record(NamedTuple):
    """One log record as read. `timestamp_ms` is milliseconds since 1970 UTC, given by the log on append."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers


class Position(NamedTuple):
    """Where an append landed. Offset 0 and partition 0 are positions like any other."""

    partition: int
    offset: int
    timestamp_ms: int


class Bounds(NamedTuple):
    """Offsets kept in a partition: `first` inclusive, `end` exclusive (the last stable offset)."""

    first: int
    end: int


class TopicInfo(NamedTuple):
    """A topic as found. `topic_id` and `cluster_id` change when a topic is made anew or copied elsewhere."""

    spec: TopicSpec
    topic_id: str
    cluster_id: str
    barrier: Barrier
    fixed: frozenset[str] = frozenset()
    """Settings that whoever provides the log does not let anybody alter."""


Delivered = Callable[[Position | None, AppendError | None], None]
"""Called once for each append, from the log's own delivery thread; it must not block or raise: a log whose
callback raised is finished, and its open appends end as AppendUnknown. Exactly one of the two arguments is
not None. An error with `definite` False means the record may be stored."""


class Reader(Protocol):
    """Reads partitions of one topic that were assigned by hand: no group, no commits."""

    def poll(self, max_records: int, timeout_s: float) -> list[Record]:
        """Up to `max_records`, in offset order within a partition; [] when nothing came within `timeout_s`.

        May return [] early when a position passed records that are not given out (control, aborted). A log that
        does not answer (or a topic deleted meanwhile) is no error here, nothing comes: ask `bounds` or `ping`.
        Raises OffsetTrimmed when a position is out of range, TopicMissing, LogFormatError, ClientFatal.
        """

    def position(self, partition: int) -> int:
        """Offset of the next record; passes control records and aborted ones too, so it reaches the end."""

    def seek(self, partition: int, offset: int) -> None: ...

    def close(self) -> None: ...


class GroupListener(Protocol):
    """Told of ownership, inside `GroupMember.poll` and `close`, on the same thread."""

    def assigned(self, partitions: Sequence[int]) -> Mapping[int, int]:
        """Returns the offset to start from for every partition given: there is no implicit start."""

    def revoked(self, partitions: Sequence[int]) -> None:
        """Ownership ends when this returns; commits for these partitions are still possible here."""

    def lost(self, partitions: Sequence[int]) -> None:
        """Ownership has ended already; nothing may be written for these partitions."""


class GroupMember(Protocol):
    """A member of a consumer group over exactly one topic."""

    def poll(self, max_records: int, timeout_s: float) -> list[Record]:
        """As `Reader.poll`, for the partitions owned now."""

    def position(self, partition: int) -> int: ...

    def seek(self, partition: int, offset: int) -> None: ...

    def commit(self, positions: Mapping[int, int]) -> None:
        """Next offsets, explicitly: a hint for people's tools. Partitions no longer owned are left out."""

    def committed(self, partitions: Sequence[int]) -> Mapping[int, int | None]: ...

    def pause(self, partitions: Sequence[int]) -> None: ...

    def resume(self, partitions: Sequence[int]) -> None: ...

    def close(self) -> None:
        """Revokes what is owned (the listener is told) and leaves the group."""


@runtime_checkable
class Log(Protocol):
    """One log. Thread-safe, except that each Reader and GroupMember belongs to the thread that polls it."""

    @property
    def url(self) -> str:
        """The address, without secrets."""

    def append(self, topic: str, key: bytes, value: bytes, headers: Headers, delivered: Delivered) -> None:
        """Queues one record under `partition_of(key, partition count)`. Pipelined; order per key is kept.

        Raises LogQueueFull (nothing was queued: wait and try this same record again), RecordTooLarge,
        TopicMissing, InvalidTrajectoryId (empty key), ClientFatal, and at the first append to a topic
        LogUnavailable: nothing was queued then. Every other outcome comes through `delivered`.
        """

    def flush(self, timeout_s: float) -> int:
        """Waits for outstanding deliveries; returns how many are still open."""

    def partition_count(self, topic: str) -> int:
        """Raises TopicMissing, LogUnavailable. Cached: the count is fixed for life."""

    def bounds(self, topic: str, partition: int) -> Bounds:
        """A fresh request, never a cached answer."""

    def ends(self, topic: str, partitions: Collection[int]) -> dict[int, int]:
        """The ends of partitions (see `Bounds`), asked for now and together: about what one of them costs."""

    def offset_at(self, topic: str, partition: int, timestamp_ms: int) -> int:
        """The first offset appended at or after the time; the end when there is none."""

    def reader(self, topic: str, starts: Mapping[int, int], *, follows: bool = False) -> Reader:
        """`follows`: it is kept, to read what comes as long as its process lives; else it reads to an end, soon."""

    def group(self, group_id: str, topic: str, listener: GroupListener) -> GroupMember: ...

    def describe(self, topic: str) -> TopicInfo:
        """Raises TopicMissing."""

    def create(self, specs: Iterable[TopicSpec]) -> list[str]:
        """Creates the topics that do not exist yet; returns the names created. Never alters what exists."""

    def delete_records(self, topic: str, before: Mapping[int, int]) -> None:
        """Removes the prefix of each partition below the given offset."""

    def ping(self, timeout_s: float) -> None:
        """Raises LogUnavailable, naming the address, when nobody answers within the bound, and ClientFatal when this
        client takes nothing any more, whoever answers."""

    def close(self) -> None:
        """Flushes within a bound. Appends still open end with AppendUnknown or AppendRefused."""
