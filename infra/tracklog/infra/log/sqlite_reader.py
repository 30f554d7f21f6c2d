"""Reading partitions of the embedded log: range scans in short transactions, and a bounded wait for more."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from tracklog.infra.log.headers import decode_headers
from tracklog.infra.log.offsets import check_partition, check_position
from tracklog.infra.log.port import Bounds, Record
from tracklog.infra.log.positions import Positions
from tracklog.infra.log.sqlite_schema import READ_FAULTS, SPAN, connect, read_error
from tracklog.infra.log.sqlite_writer import SqliteWriter

_LOOK_FIRST_S: Final = 0.002
_LOOK_MAX_S: Final = 0.05
"""Appends of this process wake a reader at once; those of others are looked for this often at least."""
_SELECT: Final = (
    "SELECT id, timestamp_ms, key, value, headers FROM records WHERE id >= ? AND id < ? ORDER BY id LIMIT ?"
)


class TopicSlots(NamedTuple):
    """Where the partitions of a topic lie in the file: in a row from `first_slot`."""

    name: str
    first_slot: int
    partitions: int


class SqliteReader(Positions):
    """See `Reader`; partitions can be assigned and taken away while it is open (for group members)."""

    def __init__(
        self,
        path: Path,
        topic: TopicSlots,
        starts: Mapping[int, int],
        *,
        writer: SqliteWriter,
        busy_timeout_s: float,
    ) -> None:
        self._path = path
        self._topic = topic
        self._writer = writer
        super().__init__(starts, lambda partition: check_partition(topic.name, partition, topic.partitions))
        self._connection = connect(path, busy_timeout_s=busy_timeout_s)

    def poll(self, max_records: int, timeout_s: float) -> list[Record]:
        deadline = time.monotonic() + timeout_s
        look_s = _LOOK_FIRST_S
        while True:
            seen = self._writer.commits
            records = self._fetch(max_records)
            left_s = deadline - time.monotonic()
            if records or left_s <= 0:
                return records
            with self._writer.arrived:
                self._writer.arrived.wait_for(partial(self._committed_since, seen), min(look_s, left_s))
            look_s = min(look_s * 2, _LOOK_MAX_S)

    def close(self) -> None:
        super().close()
        self._connection.close()

    def _committed_since(self, seen: int) -> bool:
        return self._writer.commits != seen

    def _fetch(self, max_records: int) -> list[Record]:
        active = self._active()
        if not active:
            return []
        try:
            self._connection.execute("BEGIN")
            try:
                return self._fetch_within(active, max_records)
            finally:
                self._connection.execute("COMMIT")
        except READ_FAULTS as error:
            raise read_error(self._path, error) from error

    def _fetch_within(self, active: list[int], max_records: int) -> list[Record]:
        """Every partition that has something gets its share of `max_records`; the rest goes round again."""
        bounds = self._bounds(active)
        waiting = [p for p in active if self._positions[p] < bounds[p].end]
        records: list[Record] = []
        while waiting and len(records) < max_records:
            share = max(1, (max_records - len(records)) // len(waiting))
            for partition in waiting[: max_records - len(records)]:
                records += self._scan(partition, bounds[partition].end, share)
            waiting = [p for p in waiting if self._positions[p] < bounds[p].end]
        return records

    def _bounds(self, active: list[int]) -> dict[int, Bounds]:
        first_slot = self._topic.first_slot
        rows = self._connection.execute(
            "SELECT slot, first_offset, next_offset FROM partitions WHERE slot BETWEEN ? AND ?",
            (first_slot + min(active), first_slot + max(active)),
        )
        bounds = {slot - first_slot: Bounds(first, end) for slot, first, end in rows}
        for partition in active:
            check_position(self._topic.name, partition, self._positions[partition], bounds[partition])
        return bounds

    def _scan(self, partition: int, end: int, limit: int) -> list[Record]:
        base = (self._topic.first_slot + partition) * SPAN
        rows = self._connection.execute(_SELECT, (base + self._positions[partition], base + end, limit))
        name = self._topic.name
        new, decode = tuple.__new__, decode_headers  # what Record(...) does, without its Python-level call
        records = [
            new(Record, (name, partition, row_id - base, timestamp_ms, key, value, decode(headers)))
            for row_id, timestamp_ms, key, value, headers in rows.fetchall()
        ]
        self._positions[partition] = records[-1].offset + 1 if len(records) == limit else end
        return records
