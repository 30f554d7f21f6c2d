"""`cold:ADDRESS`: the events of the cold tier as a log that is read only.

Every record comes back as it was in the log: under its partition, offset, time and key, the payload in single-object
framing, the headers made anew from what the row has. So verdicts, hashes and replays are those of the log. What was no
event lies in a table beside and comes back too. Inbox and ledger are not exported: their topics are empty here.
"""

from __future__ import annotations

import hashlib
import heapq
import json
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, NoReturn

import pyarrow as pa

from tracklog.infra.cold.columns import UNDECODABLE, row_check
from tracklog.infra.cold.scan import scan
from tracklog.infra.cold.table import UNDECODABLE_TABLE, ColdTable
from tracklog.infra.log.offsets import check_partition, check_position
from tracklog.infra.log.port import Bounds, Delivered, GroupListener, GroupMember, Headers, Reader, Record, TopicInfo
from tracklog.schemas.catalog import HEADER_SCHEMA, HEADER_TYPE
from tracklog.schemas.chain import event_hash
from tracklog.schemas.codec import HEADER_HASH, SINGLE_OBJECT_MARK
from tracklog.schemas.errors import (
    AppendRefused,
    ColdDamaged,
    ColdError,
    ColdMismatch,
    ColdMissing,
    LogFormatError,
    LogUnavailable,
    TopicMissing,
)
from tracklog.schemas.topics import TopicSpec

__all__ = ["COLD", "ColdLog", "placed_foreign", "placed_record"]

COLD: Final = "cold:"
LOOK_S: Final = 0.5
"""Between two looks at a table that had nothing new."""
_COLUMNS: Final = (
    "offset",
    "skipped",
    "append_ms",
    "trajectory_id",
    "event_type",
    "fingerprint",
    "check",
    "payload",
    "stated_hash",
)
_LEAST: Final = ("trajectory_id", "offset_min")


class ColdLog:
    """See the module, and `Log`. Opened when it is first asked something."""

    def __init__(self, url: str, options: Mapping[str, str], *, timeout_s: float = 60.0) -> None:
        self._where = url
        self._options = dict(options)
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._table: ColdTable | None = None
        self._index_lock = threading.Lock()
        self._firsts: dict[int, tuple[int, dict[bytes, int]]] = {}
        """By partition: up to where it was read, and the first offset of each trajectory below that."""

    @property
    def url(self) -> str:
        return f"{COLD}{self._where}"

    def ping(self, timeout_s: float) -> None:
        """Raises ColdMissing, ColdMismatch for a table that does not say of how many partitions it is."""
        self._opened()

    def partition_count(self, topic: str) -> int:
        count = self._opened().identity.partitions
        self._check_topic(topic)
        return count

    def bounds(self, topic: str, partition: int) -> Bounds:
        check_partition(topic, partition, self.partition_count(topic))
        if not self._is_events(topic):
            return Bounds(0, 0)
        with self._lock, _as_log():
            table = self._opened_unlocked()
            table.refresh()
            end = table.next_offset(partition)
            first = table.first_offset(partition)
        return Bounds(0, 0) if end is None else Bounds(first if first is not None else 0, end)

    def ends(self, topic: str, partitions: Collection[int]) -> dict[int, int]:
        return {partition: self.bounds(topic, partition).end for partition in partitions}

    def offset_at(self, topic: str, partition: int, timestamp_ms: int) -> int:
        bounds = self.bounds(topic, partition)
        if bounds.first == bounds.end:
            return bounds.end
        with _as_log():
            for rows in scan(self._fresh(), partition, bounds.first, bounds.end, ("offset", "append_ms")):
                for offset, at in zip(rows["offset"].to_pylist(), rows["append_ms"].to_pylist(), strict=True):
                    if at >= timestamp_ms:
                        return int(offset)
        return bounds.end

    def reader(self, topic: str, starts: Mapping[int, int], *, follows: bool = False) -> Reader:
        for partition in starts:
            check_partition(topic, partition, self.partition_count(topic))
        return ColdReader(self, topic, starts)

    def records(self, topic: str, partition: int, start: int, end: int) -> Iterator[Record]:
        """Those from `start` to `end` (exclusive) in order; of a partition whose bounds were asked for.

        Raises LogFormatError where rows are missing or there twice, and for a file that cannot be read.
        """
        if not self._is_events(topic) or start >= end:
            return
        with _as_log():
            table = self._fresh()
            aside = self._undecodable(topic, partition, start, end)
            parts = scan(table, partition, start, end, _COLUMNS)
            own = (placed for rows in parts for placed in _records(topic, partition, rows))
            expected = start
            for record, skipped in heapq.merge(own, aside, key=_offset) if aside else own:
                begins = record.offset - skipped
                if record.offset < expected or (begins > expected and table.gap_end(partition, expected) != begins):
                    raise _not_whole(table, partition, expected, record.offset)
                expected = record.offset + 1
                yield record

    def first_with(self, topic: str, partition: int, keys: Collection[bytes], end: int | None = None) -> int:
        """The least offset of an event under one of these keys below `end` (else that of the table); the end when
        there is none.

        The first call for a partition reads two columns of it; what is added later is read when it is asked for.
        """
        with self._index_lock, _as_log():
            bounds = self.bounds(topic, partition)
            if not self._is_events(topic):
                return bounds.end
            end = bounds.end if end is None else end
            upto, firsts = self._firsts.get(partition, (bounds.first, {}))
            if upto < end:
                for rows in scan(self._fresh(), partition, upto, end, ("offset", "trajectory_id")):
                    least = rows.group_by("trajectory_id").aggregate([("offset", "min")])
                    for name, offset in zip(*(least[one].to_pylist() for one in _LEAST), strict=True):
                        firsts.setdefault(name.encode(), offset)
                self._firsts[partition] = (end, firsts)
            return min((firsts[key] for key in keys if key in firsts and firsts[key] < end), default=end)

    def describe(self, topic: str) -> TopicInfo:
        count = self.partition_count(topic)
        identity = self._opened().identity
        known = identity.topic_id if self._is_events(topic) else f"{identity.topic_id}/{topic}"
        return TopicInfo(TopicSpec(topic, count, 1), known, identity.cluster_id, "none")

    def append(self, topic: str, key: bytes, value: bytes, headers: Headers, delivered: Delivered) -> None:
        self._refuse(f"append to {topic}")

    def flush(self, timeout_s: float) -> int:
        return 0

    def group(self, group_id: str, topic: str, listener: GroupListener) -> GroupMember:
        self._refuse(f"join the group {group_id}")

    def create(self, specs: Iterable[TopicSpec]) -> list[str]:
        self._refuse("create topics")

    def delete_records(self, topic: str, before: Mapping[int, int]) -> None:
        self._refuse(f"trim {topic}")

    def close(self) -> None:
        """Nothing is held open."""

    def _refuse(self, what: str) -> NoReturn:
        raise AppendRefused(
            f"cannot {what}: {self.url} is read only",
            hint="write to the log itself: where cold.url is set, its readers go on in the cold tier by themselves",
        )

    def _is_events(self, topic: str) -> bool:
        return topic == self._opened().identity.topic

    def _check_topic(self, topic: str) -> None:
        """Of the topics of one installation, which share their prefix."""
        events = self._opened().identity.topic
        prefix = events.rpartition(".")[0]
        if topic != events and topic.rpartition(".")[0] != prefix:
            raise TopicMissing(
                f"the topic {topic} is not in {self.url}: it is the export of {events}",
                hint=f"use --prefix {prefix}",
            )

    def _opened(self) -> ColdTable:
        with self._lock, _as_log():
            return self._opened_unlocked()

    def _opened_unlocked(self) -> ColdTable:
        if self._table is None:
            self._table = ColdTable.open(self._where, self._options, timeout_s=self._timeout_s)
            if self._table.identity.partitions < 1:
                raise ColdMismatch(
                    f"{self._table.uri} does not say how many partitions its topic has",
                    hint="run `tracklog export` once: it notes them",
                )
        return self._table

    def events_table(self) -> ColdTable:
        """The events table, opened anew. Raises what opening it raises, as a log."""
        with _as_log():
            return self._fresh()

    def _fresh(self) -> ColdTable:
        """A handle of its own for one scan: a compaction that another one reads of meanwhile changes nothing in it."""
        return ColdTable.open(self._where, self._options, timeout_s=self._timeout_s)

    def _undecodable(self, topic: str, partition: int, start: int, end: int) -> list[_Placed]:
        """Few, or none."""
        try:
            table = ColdTable.open(self._where, self._options, kind=UNDECODABLE_TABLE, timeout_s=self._timeout_s)
        except ColdMissing:
            return []
        found: list[_Placed] = []
        for file in table.files(partition, start, end):
            with table.parquet(file.path) as parquet:
                rows = parquet.read(columns=[f.name for f in UNDECODABLE if f.name not in file.values])
            found += [
                _foreign(topic, row)
                for row in rows.to_pylist()
                if row["partition"] == partition and start <= row["offset"] < end
            ]
        return sorted(found, key=_offset)


class ColdReader:
    """See `Reader`."""

    def __init__(self, log: ColdLog, topic: str, starts: Mapping[int, int]) -> None:
        self._log = log
        self._topic = topic
        self._positions = dict(starts)
        self._open: dict[int, tuple[Iterator[Record], int]] = {}
        self._closed = threading.Event()

    def poll(self, max_records: int, timeout_s: float) -> list[Record]:
        records = self._take(max_records)
        while not records and timeout_s > 0 and not self._closed.is_set():
            wait_s = min(LOOK_S, timeout_s)
            self._closed.wait(wait_s)
            timeout_s -= wait_s
            records = self._take(max_records)
        return records

    def position(self, partition: int) -> int:
        return self._positions[partition]

    def seek(self, partition: int, offset: int) -> None:
        if partition in self._positions:
            self._positions[partition] = offset
            self._open.pop(partition, None)

    def close(self) -> None:
        self._closed.set()
        self._open.clear()

    def _take(self, max_records: int) -> list[Record]:
        records: list[Record] = []
        for partition in sorted(self._positions, key=lambda p: self._positions[p]):
            if len(records) >= max_records:
                break
            records += self._take_of(partition, max_records - len(records))
        return records

    def _take_of(self, partition: int, limit: int) -> list[Record]:
        if partition not in self._open:
            bounds = self._log.bounds(self._topic, partition)
            start = self._positions[partition]
            check_position(self._topic, partition, start, bounds)
            if start == bounds.end:
                return []
            self._open[partition] = (self._log.records(self._topic, partition, start, bounds.end), bounds.end)
        source, end = self._open[partition]
        records = []
        for record in source:
            records.append(record)
            if len(records) == limit:
                self._positions[partition] = record.offset + 1
                return records
        self._positions[partition] = end
        del self._open[partition]
        return records


_Placed = tuple[Record, int]
"""A record, and how many offsets before it the log gives nobody."""


def _offset(placed: _Placed) -> int:
    return placed[0].offset


def _not_whole(table: ColdTable, partition: int, expected: int, found: int) -> LogFormatError:
    return LogFormatError(
        f"{table.uri}, partition {partition}: offset {expected} was to come, found is {found}: rows are missing, or"
        " there twice",
        hint="`tracklog cold verify` names everything that is wrong",
    )


def placed_record(topic: str, row: Mapping[str, Any]) -> Record:
    """A row of the events table as the record that it was; without a value where its payload was left out."""
    if not row["payload"]:
        place = (topic, row["partition"], row["offset"], row["append_ms"])
        return Record(*place, row["trajectory_id"].encode(), None, ())
    return next(_made(topic, row["partition"], [[row[name]] for name in _COLUMNS]))[0]


def placed_foreign(log: ColdLog, topic: str, partition: int) -> list[_Placed]:
    """All records of a partition that were no events, each with how many offsets before it the log gives nobody."""
    return log._undecodable(topic, partition, 0, 2**63 - 1)


def _records(topic: str, partition: int, rows: pa.Table) -> Iterator[_Placed]:
    yield from _made(topic, partition, [rows[name].to_pylist() for name in _COLUMNS])


def _made(topic: str, partition: int, columns: Sequence[Sequence[Any]]) -> Iterator[_Placed]:
    for offset, skipped, append_ms, trajectory_id, event_type, fingerprint, check, payload, stated in zip(
        *columns, strict=True
    ):
        if not payload:
            raise LogFormatError(
                f"partition {partition}, offset {offset}: event of {trajectory_id!r} was exported without its payload",
                hint="it is in the log alone (redaction.export=everything)",
            )
        digest = event_hash(fingerprint, payload)
        if check != row_check(digest, partition, offset, append_ms):
            digest = hashlib.sha256(digest).digest()  # any other one: its bytes are not what was exported here
        headers = (
            (HEADER_TYPE, event_type.encode()),
            (HEADER_SCHEMA, fingerprint),
            (HEADER_HASH, stated or digest),
        )
        value = SINGLE_OBJECT_MARK + fingerprint + payload
        yield Record(topic, partition, offset, append_ms, trajectory_id.encode(), value, headers), skipped


def _foreign(topic: str, row: Mapping[str, Any]) -> _Placed:
    headers = tuple((name, bytes.fromhex(value or "")) for name, value in json.loads(row["headers"]))
    place = (topic, row["partition"], row["offset"], row["append_ms"])
    return Record(*place, row["key"], row["value"], headers), row["skipped"]


@contextmanager
def _as_log() -> Iterator[None]:
    """Raises what the tables raise as what a log raises."""
    try:
        yield
    except ColdDamaged as error:
        raise LogFormatError(error.message, hint=error.hint) from error
    except (ColdMissing, ColdMismatch):
        raise
    except ColdError as error:
        raise LogUnavailable(error.message, hint=error.hint) from error
