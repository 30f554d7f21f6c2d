"""`sqlite:PATH`: the embedded log, one file on a local disk (DESIGN §3)."""

from __future__ import annotations

import json
import secrets
import sqlite3
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from tracklog.infra.log.group_member import EmbeddedMember
from tracklog.infra.log.headers import encode_headers
from tracklog.infra.log.offsets import check_delete, check_partition
from tracklog.infra.log.partitioner import partition_of
from tracklog.infra.log.port import Bounds, Delivered, GroupListener, Headers, TopicInfo
from tracklog.infra.log.record_size import check_record_size
from tracklog.infra.log.sqlite_group import Heartbeats, SqliteGroup
from tracklog.infra.log.sqlite_reader import SqliteReader, TopicSlots
from tracklog.infra.log.sqlite_schema import READ_FAULTS, SPAN, connect, open_file, read_error
from tracklog.infra.log.sqlite_writer import Append, SqliteWriter
from tracklog.schemas.errors import ClientFatal, SettingsError, TopicMissing
from tracklog.schemas.topics import TopicSpec

T = TypeVar("T")

DELETE_RECORDS_MAX: Final = 20_000
"""Records removed in one transaction: bounds how long a deletion keeps writers waiting."""


@dataclass(frozen=True, slots=True)
class SqliteOptions:
    """Bounds of the embedded log."""

    busy_timeout_s: float = 5.0
    """How long a transaction waits for another process's. Past it an append ends as AppendRefused."""
    queue_records_max: int = 100_000
    """Appends that are open at once; one more raises LogQueueFull."""
    queue_bytes_max: int = 64 * 1024 * 1024
    """Bytes of appends that wait for a transaction."""
    size_bytes_max: int | None = None
    """Largest size of the file; None leaves it to the disk. Past it appends end as AppendRefused."""
    session_s: float = 10.0
    """A group member that was silent for this long loses its partitions."""
    turn_interval_s: float = 0.1
    """How often a group member looks at its group."""
    close_timeout_s: float = 10.0


class SqliteLog:
    """See `Log`. A process that is frozen inside a transaction stops all writers: they fail closed after the
    busy time-out. Everything acknowledged is on the disk (`synchronous=FULL`), so the barrier is `fsync`."""

    def __init__(self, path: Path, *, now_ms: Callable[[], int], options: SqliteOptions | None = None) -> None:
        self._path = path
        self._options = options if options is not None else SqliteOptions()
        open_file(path, busy_timeout_s=self._options.busy_timeout_s)
        self._heartbeats = Heartbeats(self._options.session_s / 5)
        self._look_lock = threading.Lock()
        self._closed = False
        self._look_connection = connect(path, busy_timeout_s=self._options.busy_timeout_s)
        self._topics: dict[str, TopicSlots] = {}
        self._writer = SqliteWriter(
            path,
            now_ms=now_ms,
            busy_timeout_s=self._options.busy_timeout_s,
            queue_records_max=self._options.queue_records_max,
            queue_bytes_max=self._options.queue_bytes_max,
            size_bytes_max=self._options.size_bytes_max,
            beat=self._heartbeats.beat,
            beat_interval_s=self._options.session_s / 5,
        )

    @property
    def url(self) -> str:
        return f"sqlite:{self._path}"

    def append(self, topic: str, key: bytes, value: bytes, headers: Headers, delivered: Delivered) -> None:
        size = check_record_size(topic, key, value, headers)
        slots = self._slots(topic)
        partition = partition_of(key, slots.partitions)
        encoded = encode_headers(headers)
        self._writer.append(Append(slots.first_slot + partition, partition, key, value, encoded, size, delivered))

    def flush(self, timeout_s: float) -> int:
        return self._writer.flush(timeout_s)

    def partition_count(self, topic: str) -> int:
        return self._slots(topic).partitions

    def bounds(self, topic: str, partition: int) -> Bounds:
        slot = self._slot(topic, partition)
        return self.look(lambda connection: _bounds(connection, slot))

    def ends(self, topic: str, partitions: Collection[int]) -> dict[int, int]:
        slots = {one: self._slot(topic, one) for one in partitions}
        return self.look(lambda connection: {one: _bounds(connection, slot).end for one, slot in slots.items()})

    def offset_at(self, topic: str, partition: int, timestamp_ms: int) -> int:
        slot = self._slot(topic, partition)
        return self.look(lambda connection: _offset_at(connection, slot, timestamp_ms))

    def reader(self, topic: str, starts: Mapping[int, int], *, follows: bool = False) -> SqliteReader:
        return SqliteReader(
            self._path,
            self._slots(topic),
            starts,
            writer=self._writer,
            busy_timeout_s=self._options.busy_timeout_s,
        )

    def group(self, group_id: str, topic: str, listener: GroupListener) -> EmbeddedMember:
        return EmbeddedMember(
            SqliteGroup(self, self._heartbeats, group_id, topic),
            self.reader(topic, {}),
            listener,
            partitions=self.partition_count(topic),
            session_s=self._options.session_s,
            turn_interval_s=self._options.turn_interval_s,
        )

    def describe(self, topic: str) -> TopicInfo:
        return self.look(lambda connection: self._describe(connection, topic))

    def create(self, specs: Iterable[TopicSpec]) -> list[str]:
        wanted = list(specs)
        return self.run(lambda connection: [spec.name for spec in wanted if _create(connection, spec)])

    def delete_records(self, topic: str, before: Mapping[int, int]) -> None:
        for partition, offset in before.items():
            slot = self._slot(topic, partition)
            check_delete(topic, partition, offset, self.bounds(topic, partition))
            finished = False
            while not finished:
                finished = self.run(partial(_delete, slot=slot, before=offset))

    def ping(self, timeout_s: float) -> None:
        self._writer.check_alive()
        self.look(lambda connection: connection.execute("SELECT cluster_id FROM installation").fetchone())

    def close(self) -> None:
        self._writer.close(self._options.close_timeout_s)
        with self._look_lock:
            self._closed = True
            self._look_connection.close()

    def look(self, query: Callable[[sqlite3.Connection], T]) -> T:
        """Runs a read in one transaction on the connection that this process keeps for such."""
        with self._look_lock:
            if self._closed:
                raise ClientFatal(f"the log {self.url} is closed")
            try:
                self._look_connection.execute("BEGIN")
                try:
                    return query(self._look_connection)
                finally:
                    self._look_connection.execute("COMMIT")
            except READ_FAULTS as error:
                raise read_error(self._path, error) from error

    def run(self, job: Callable[[sqlite3.Connection], T], timeout_s: float | None = None) -> T:
        """Runs a write in one transaction on the writer's thread."""
        return self._writer.run(job, timeout_s if timeout_s is not None else 3 * self._options.busy_timeout_s)

    def _slot(self, topic: str, partition: int) -> int:
        slots = self._slots(topic)
        check_partition(topic, partition, slots.partitions)
        return slots.first_slot + partition

    def _slots(self, topic: str) -> TopicSlots:
        """Cached: a topic is never altered, and there is no way to remove one."""
        slots = self._topics.get(topic)
        if slots is None:
            row = self.look(lambda connection: _topic_row(connection, topic))
            if row is None:
                raise TopicMissing(f"the topic {topic} is not in {self.url}", hint="create it: tracklog topics apply")
            slots = self._topics[topic] = TopicSlots(topic, row[1], row[2])
        return slots

    def _describe(self, connection: sqlite3.Connection, topic: str) -> TopicInfo:
        row = _topic_row(connection, topic)
        if row is None:
            raise TopicMissing(f"the topic {topic} is not in {self.url}", hint="create it: tracklog topics apply")
        topic_id, _, partitions, config = row
        cluster_id = connection.execute("SELECT cluster_id FROM installation").fetchone()[0]
        return TopicInfo(TopicSpec(topic, partitions, 1, json.loads(config)), topic_id, cluster_id, "fsync")


def _topic_row(connection: sqlite3.Connection, topic: str) -> tuple[str, int, int, str] | None:
    row: tuple[str, int, int, str] | None = connection.execute(
        "SELECT topic_id, first_slot, partitions, config FROM topics WHERE name = ?", (topic,)
    ).fetchone()
    return row


def _bounds(connection: sqlite3.Connection, slot: int) -> Bounds:
    row = connection.execute("SELECT first_offset, next_offset FROM partitions WHERE slot = ?", (slot,)).fetchone()
    return Bounds(*row)


def _offset_at(connection: sqlite3.Connection, slot: int, timestamp_ms: int) -> int:
    """Timestamps never fall within a partition and offsets have no holes, so halving finds the first one."""
    low, high = _bounds(connection, slot)
    while low < high:
        middle = (low + high) // 2
        row = connection.execute("SELECT timestamp_ms FROM records WHERE id = ?", (slot * SPAN + middle,)).fetchone()
        if row[0] < timestamp_ms:
            low = middle + 1
        else:
            high = middle
    return low


def _create(connection: sqlite3.Connection, spec: TopicSpec) -> bool:
    if _topic_row(connection, spec.name) is not None:
        return False
    if spec.replication_factor != 1:
        raise SettingsError(
            f"the topic {spec.name} cannot have {spec.replication_factor} replicas in a file",
            hint="one file is one replica: ask for replication factor 1, or use kafka://",
        )
    first_slot = connection.execute("SELECT coalesce(max(slot) + 1, 0) FROM partitions").fetchone()[0]
    connection.execute(
        "INSERT INTO topics VALUES (?, ?, ?, ?, ?)",
        (spec.name, secrets.token_hex(16), first_slot, spec.partitions, json.dumps(dict(spec.config))),
    )
    connection.executemany(
        "INSERT INTO partitions VALUES (?, 0, 0, 0)", [(first_slot + p,) for p in range(spec.partitions)]
    )
    return True


def _delete(connection: sqlite3.Connection, slot: int, before: int) -> bool:
    """Removes one bounded piece of the prefix; True when nothing below `before` is left."""
    first, end = _bounds(connection, slot)
    first_kept = max(first, min(before, end, first + DELETE_RECORDS_MAX))
    base = slot * SPAN
    connection.execute("DELETE FROM records WHERE id >= ? AND id < ?", (base, base + first_kept))
    connection.execute("UPDATE partitions SET first_offset = ? WHERE slot = ?", (first_kept, slot))
    return first_kept >= before
