"""The partitions of a dispatcher, as its loop's thread follows them (DESIGN §6)."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from tracklog.consumers.dispatch.follow import NEW, Followed, Intended, follow, passed
from tracklog.consumers.dispatch.kept import KEEP_RECORDS, Keeper, KeptRow, Standing, Start
from tracklog.consumers.dispatch.slots import Row, entered
from tracklog.infra.log.port import Bounds, Log, Record
from tracklog.infra.log.ranges import read_range
from tracklog.schemas.codec import decode_event, decode_ledger
from tracklog.schemas.errors import ForeignRecord, StoreConflict
from tracklog.schemas.topics import Topics

__all__ = ["Assigned", "DispatchPartitions", "News"]

RESTORES_MAX: Final = 5
"""Tries to take a partition over from the store while somebody else moves what it holds."""


class Assigned(NamedTuple):
    """A partition at its start: open calls, who was cancelled, rows of the ledger up to `ledger_position`, and which of
    them are not stored like this."""

    calls: tuple[Intended, ...]
    cancelled: frozenset[str]
    rows: dict[bytes, Row]
    ledger_position: int
    position: int
    unsaved: frozenset[bytes] = frozenset()


class News(NamedTuple):
    """What a batch of events has brought; `position` is the offset after it."""

    position: int
    opened: tuple[Intended, ...] = ()
    closed: tuple[bytes, ...] = ()
    escalated: tuple[bytes, ...] = ()
    cancelled: tuple[str, ...] = ()


class DispatchPartitions:
    """Owner of the partition loop over the events topic.

    With a `keeper` open calls, heads and position are stored together, a second or so behind; without one a partition
    is folded from its first kept event at each assignment, and the ledger read beside it. What is stored says only
    where to begin, and who may act is told by the log alone: so it may be old, or lost.

    `revoked` is called on the loop's thread and returns when nothing of the partition is worked on. `standing` gives
    the ledger's rows as its reader has them, None while it does not follow the partition; `saved` tells it what is
    stored.
    """

    def __init__(
        self,
        log: Log,
        topics: Topics,
        *,
        assigned: Callable[[int, Assigned], None],
        news: Callable[[int, News], None],
        revoked: Callable[[int], None],
        standing: Callable[[int, Collection[bytes]], Standing | None] = lambda _, __: None,
        saved: Callable[[int, Standing], None] = lambda _, __: None,
        keeper: Keeper | None = None,
    ) -> None:
        self._log = log
        self._topics: Final = topics
        self._on_assigned = assigned
        self._on_news = news
        self._on_revoked = revoked
        self._standing = standing
        self._saved = saved
        self._keeper = keeper
        self._known: dict[int, dict[bytes, Followed]] = {}
        self._positions: dict[int, int] = {}
        self._moved: set[int] = set()

    def restore(self, partition: int) -> int:
        """Reads the events of the partition to their present end, and the ledger to where it ended before that: so
        every entry that is read belongs to an intent that is known."""
        for _ in range(RESTORES_MAX):
            try:
                return self._restore(partition)
            except StoreConflict as conflict:
                moved = conflict
        raise moved

    def _restore(self, partition: int) -> int:
        ledger = self._log.bounds(self._topics.attempts, partition)
        events = self._log.bounds(self._topics.events, partition)
        start = self._start(partition, events, ledger)
        known = self._known[partition] = start.known
        for records in _cut(read_range(self._log, self._topics.events, partition, start.position, events.end)):
            self._fetch(partition, records)
            for record in records:
                self._take(partition, record)
            if self._keeper is not None and len(records) == KEEP_RECORDS:
                self._keeper.commit(partition, records[-1].offset + 1, known, {})
        self._positions[partition] = events.end
        calls = tuple(one for each in known.values() for one in each.calls.values())
        kept = {one.hash: start.rows.get(one.hash, KeptRow()) for one in calls}
        rows = {one: row.row for one, row in kept.items()}
        for record in read_range(self._log, self._topics.attempts, partition, start.ledger_from, ledger.end):
            _enter(rows, kept, record)
        unsaved = frozenset(one for one, row in rows.items() if row != kept[one].row)
        cancelled = frozenset(key.decode() for key, one in known.items() if one.cancelled and one.calls)
        self._on_assigned(partition, Assigned(calls, cancelled, rows, ledger.end, events.end, unsaved))
        return events.end

    def fold(self, partition: int, records: Sequence[Record], position: int) -> None:
        """Follows the events and hands over what they brought; then stores where it stands, when it is time."""
        records = [record for record in records if record.offset >= self._positions[partition]]  # it may come again
        try:
            self._fetch(partition, records)
            self._on_news(partition, self._follow(partition, records, position))
            self._keep(partition, idle=not records)
        except StoreConflict:
            self._moved.add(partition)
            raise

    def forget(self, partition: int) -> None:
        """When only the store has moved, the partition is read again, and calls under way go on."""
        self._known.pop(partition, None)
        self._positions.pop(partition, None)
        if self._keeper is not None:
            self._keeper.forget(partition)
        if partition in self._moved:
            self._moved.discard(partition)
        else:
            self._on_revoked(partition)

    def _start(self, partition: int, events: Bounds, ledger: Bounds) -> Start:
        if self._keeper is None:
            return Start(events.first, ledger.first, {}, {})
        return self._keeper.begin(partition, events, ledger)

    def _follow(self, partition: int, records: Iterable[Record], position: int) -> News:
        opened: list[Intended] = []
        closed: list[bytes] = []
        escalated: list[bytes] = []
        cancelled: list[str] = []
        for record in records:
            before, after = self._take(partition, record)
            if after.calls is before.calls and after.cancelled == before.cancelled:
                continue
            was, now = ({one.hash for one in known.calls.values()} for known in (before, after))
            opened += [one for one in after.calls.values() if one.hash not in was]
            closed += [one.hash for one in before.calls.values() if one.hash not in now]
            escalated += [
                one.hash for one in after.calls.values() if one.escalated and one not in before.calls.values()
            ]
            if after.cancelled and not before.cancelled and record.key is not None:
                cancelled.append(record.key.decode())
        self._positions[partition] = max(self._positions[partition], position)
        return News(position, tuple(opened), tuple(closed), tuple(escalated), tuple(cancelled))

    def _take(self, partition: int, record: Record) -> tuple[Followed, Followed]:
        known = self._known[partition]
        before, after = _take(known, record)
        if self._keeper is not None and after is not before:
            assert record.key is not None
            known[record.key] = known.pop(record.key)  # in the order in which they may leave memory
            self._keeper.changed(partition, record, before, after)
        return before, after

    def _fetch(self, partition: int, records: Iterable[Record]) -> None:
        if self._keeper is not None:
            keys = [record.key for record in records if record.key is not None]
            self._keeper.fetch(partition, self._known[partition], keys)

    def _keep(self, partition: int, *, idle: bool) -> None:
        if self._keeper is None:
            return

        def standing(wanted: Collection[bytes]) -> Standing | None:
            return self._standing(partition, wanted)

        def ends() -> tuple[int, int]:
            ledger = self._log.bounds(self._topics.attempts, partition)
            return ledger.end, self._log.bounds(self._topics.events, partition).end

        position, known = self._positions[partition], self._known[partition]
        stored = self._keeper.keep(partition, position, known, idle=idle, standing=standing, ends=ends)
        if stored is not None:
            self._saved(partition, stored)


def _cut(records: Iterator[Record]) -> Iterator[list[Record]]:
    while batch := list(itertools.islice(records, KEEP_RECORDS)):
        yield batch


def _take(known: dict[bytes, Followed], record: Record) -> tuple[Followed, Followed]:
    """What was known of the record's trajectory before and after it."""
    before = known.get(record.key, NEW) if record.key is not None else NEW
    quick = passed(before, record)
    if quick is not None and record.key is not None:
        known[record.key] = quick
        return before, quick
    try:
        event = decode_event(record.key, record.value, record.headers)
    except ForeignRecord:
        return before, before  # nobody's event; whoever owns the partition for quarantine keeps it
    assert record.key is not None
    after = known[record.key] = follow(before, event)
    return before, after


def _enter(rows: dict[bytes, Row], kept: Mapping[bytes, KeptRow], record: Record) -> None:
    try:
        read = decode_ledger(record.key, record.value, record.headers)
    except ForeignRecord:
        return
    row = rows.get(read.envelope.intent_hash)
    if row is not None and record.offset >= kept[read.envelope.intent_hash].upto:
        rows[read.envelope.intent_hash] = entered(row, read, record.timestamp_ms)
