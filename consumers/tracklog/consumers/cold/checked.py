"""The events table as a log that goes on where a row is wrong, and notes it: what `tracklog cold verify` reads.

Each offset between the first and the next of a partition is a row, a row of the table beside, or one that the log
gave nobody, which the next row says. So a row that is missing, there twice, or out of place shows by its offset alone;
one that was altered shows by its hash; and what its history makes of it is the audit's to say.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from tracklog.consumers.blob_names import blobs_of_event
from tracklog.consumers.cold.rows import CHECKED, altered
from tracklog.consumers.export.rows import body_text, may_name_blobs
from tracklog.infra.blobs import BlobStore
from tracklog.infra.cold.cold_log import ColdLog, placed_foreign, placed_record
from tracklog.infra.cold.scan import scan
from tracklog.infra.cold.table import ColdTable, DataFile
from tracklog.infra.log.port import Bounds, Record
from tracklog.schemas.codec import decode_event
from tracklog.schemas.errors import ColdDamaged, ForeignRecord
from tracklog.schemas.plain import plain_event

__all__ = ["CheckedLog", "Fault", "PartitionCount"]

FAULTS_KEPT_MAX: Final = 1_000
HOLES_KEPT_MAX: Final = 1_000
BLOBS_KNOWN_MAX: Final = 100_000


class Fault(NamedTuple):
    """What is wrong with the table at a place. `what`: missing, twice, altered, beyond the end, damaged file, altered
    file, missing table, blob. A file or a table is at no place."""

    what: str
    partition: int | None
    offset: int | None
    trajectory_id: str
    seq: int | None
    detail: str


@dataclass(slots=True)
class PartitionCount:
    """`holes`: offsets that the log gave nobody; `gaps`: those it had let go of before they were exported;
    `redacted`: rows whose payload was left out, so that nobody can verify them by their hash."""

    partition: int
    first: int = 0
    next: int = 0
    rows: int = 0
    undecodable: int = 0
    holes: int = 0
    redacted: int = 0
    gaps: list[tuple[int, int]] = field(default_factory=list)
    hole_ranges: list[tuple[int, int]] = field(default_factory=list)
    """The first of the holes, [from, to)."""


class CheckedLog(ColdLog):
    """See the module. `blobs` None looks for no blob."""

    def __init__(self, url: str, options: Mapping[str, str], *, timeout_s: float, blobs: BlobStore | None) -> None:
        super().__init__(url, options, timeout_s=timeout_s)
        self._blobs = blobs
        self._blobs_known: OrderedDict[str, bool] = OrderedDict()
        self.faults: list[Fault] = []
        self.faults_total = 0
        self.counts: dict[int, PartitionCount] = {}
        self.blobs_named = 0
        self._damaged: set[str] = set()
        self.redacted: dict[str, int] = {}
        """By trajectory, the rows whose payload was left out of the export."""

    @property
    def table(self) -> ColdTable:
        """As it was when it was opened: an exporter that goes on changes nothing of what is checked."""
        return self._opened()

    def bounds(self, topic: str, partition: int) -> Bounds:
        table = self.table
        end, first = table.next_offset(partition), table.first_offset(partition)
        return Bounds(0, 0) if end is None else Bounds(first or 0, end)

    def records(self, topic: str, partition: int, start: int, end: int) -> Iterator[Record]:
        count = self.counts[partition] = PartitionCount(partition, start, end)
        if start > 0 and self.table.gap_end(partition, 0) == start:
            count.gaps.append((0, start))
        at = _Walk(self, self.table, count, start)
        own = self._own(topic, partition)
        aside = [(record.offset, record, skipped, None) for record, skipped in placed_foreign(self, topic, partition)]
        kept: Record | None = None  # who reads stops at the last one: what lies behind it must be seen by then
        for _, record, skipped, row in heapq.merge(own, aside, key=lambda one: one[0]):
            if at.step(record, skipped, row is not None, end):
                if row is not None and not self._whole(row, record, count):
                    continue
                if row is not None:
                    self._check(row, record)
                if kept is not None:
                    yield kept
                kept = record
        at.ended(end)
        if kept is not None:
            yield kept

    def _whole(self, row: Mapping[str, Any], record: Record, count: PartitionCount) -> bool:
        """Whether the audit may see it: a history ends for it where the first payload was left out."""
        if not row["payload"]:
            count.redacted += 1
            self.redacted[row["trajectory_id"]] = self.redacted.get(row["trajectory_id"], 0) + 1
            return False
        if row["trajectory_id"] not in self.redacted:
            return True
        self._check(row, record)
        return False

    def note(self, fault: Fault) -> None:
        self.faults_total += 1
        if len(self.faults) < FAULTS_KEPT_MAX:
            self.faults.append(fault)

    def _own(self, topic: str, partition: int) -> Iterator[tuple[int, Record, int, Mapping[str, Any] | None]]:
        for part in scan(self.table, partition, columns=CHECKED, on_damaged=self._on_damaged):
            for row in part.to_pylist():
                yield row["offset"], placed_record(topic, row), row["skipped"], row

    def _on_damaged(self, file: DataFile, error: ColdDamaged) -> None:
        """Once, though several partitions are in it: what is missing of each is named by its offsets."""
        if file.path not in self._damaged:
            self._damaged.add(file.path)
            self.note(Fault("damaged file", None, None, "", None, error.message))

    def _check(self, row: Mapping[str, Any], record: Record) -> None:
        where = (row["partition"], row["offset"], row["trajectory_id"], row["seq"])
        identity = self.table.identity
        if (row["cluster_id"], row["topic_id"]) != identity[:2]:
            self.note(Fault("altered", *where, "the row names another cluster or topic than the table is of"))
        for detail in altered(row, record):
            self.note(Fault("altered", *where, detail))
        if self._blobs is not None:
            self._check_blobs(self._blobs, record, where)

    def _check_blobs(self, store: BlobStore, record: Record, where: tuple[int, int, str, int]) -> None:
        try:
            event = plain_event(record.key, record.value, record.headers)
        except ForeignRecord:
            return
        if event.body is None or not may_name_blobs(event, body_text(event.body)):
            return
        for digest, _ in blobs_of_event(decode_event(record.key, record.value, record.headers)):
            self.blobs_named += 1
            if digest not in self._blobs_known:
                self._blobs_known[digest] = store.has(digest)
                while len(self._blobs_known) > BLOBS_KNOWN_MAX:
                    self._blobs_known.popitem(last=False)
            if not self._blobs_known.get(digest, True):
                self.note(Fault("blob", *where, f"it names blob {digest}, which is not in {store.url}"))


class _Walk:
    """Through one partition, offset by offset."""

    def __init__(self, log: CheckedLog, table: ColdTable, count: PartitionCount, start: int) -> None:
        self._log = log
        self._table = table
        self._count = count
        self._expected = start
        self._last = -1

    def step(self, record: Record, skipped: int, is_event: bool, end: int) -> bool:
        """Whether the record is to be looked at: it is in its place."""
        count, offset = self._count, record.offset
        if offset >= end:
            self._fault("beyond the end", offset, record, f"the table says that the partition ends at {end}")
            return False
        if offset == self._last or offset < self._expected:
            self._fault("twice", offset, record, "there is more than one row of this offset, or it is inside a hole")
            return False
        begins = offset - skipped
        self._before(begins, record)
        if skipped > 0 and begins >= self._expected:
            count.holes += skipped
            if len(count.hole_ranges) < HOLES_KEPT_MAX:
                count.hole_ranges.append((begins, offset))
        count.rows += is_event
        count.undecodable += not is_event
        self._expected, self._last = offset + 1, offset
        return True

    def ended(self, end: int) -> None:
        if self._expected < end:
            self._missing(self._expected, end, None)

    def _before(self, begins: int, record: Record) -> None:
        """What lies between the record before and where this one's stretch begins."""
        if begins == self._expected:
            return
        gap = self._table.gap_end(self._count.partition, self._expected)
        if gap is not None and gap <= begins:
            self._count.gaps.append((self._expected, gap))
            self._expected = gap
        if begins > self._expected:
            self._missing(self._expected, begins, record)
        elif begins < self._expected:
            self._fault("altered", record.offset, record, f"it says that nothing lies from offset {begins} on")

    def _missing(self, first: int, end: int, following: Record | None) -> None:
        before = "the end" if following is None else f"event {_named(following)}"
        offsets = f"offset {first}" if end == first + 1 else f"offsets {first} to {end - 1}"
        self._log.note(Fault("missing", self._count.partition, first, "", None, f"{offsets}, before {before}"))

    def _fault(self, what: str, offset: int, record: Record, detail: str) -> None:
        try:
            envelope = plain_event(record.key, record.value, record.headers).envelope
            who: tuple[str, int | None] = (envelope["trajectory_id"], envelope["seq"])
        except ForeignRecord:
            who = ("", None)
        self._log.note(Fault(what, self._count.partition, offset, *who, detail))


def _named(record: Record) -> str:
    return f"at offset {record.offset}"
