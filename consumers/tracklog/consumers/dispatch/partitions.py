"""The partitions of a dispatcher, as its loop's thread follows them (DESIGN §6)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from tracklog.consumers.dispatch.follow import NEW, Followed, Intended, follow
from tracklog.consumers.dispatch.slots import EMPTY, Row, entered
from tracklog.infra.log.port import Log, Record
from tracklog.infra.log.ranges import read_range
from tracklog.schemas.codec import decode_event, decode_ledger
from tracklog.schemas.errors import ForeignRecord
from tracklog.schemas.topics import Topics

__all__ = ["Assigned", "DispatchPartitions", "News"]


class Assigned(NamedTuple):
    """A partition at its start: open calls, who was cancelled, rows of the ledger up to `ledger_position`."""

    calls: tuple[Intended, ...]
    cancelled: frozenset[str]
    rows: dict[bytes, Row]
    ledger_position: int
    position: int


class News(NamedTuple):
    """What a batch of events has brought; `position` is the offset after it."""

    position: int
    opened: tuple[Intended, ...] = ()
    closed: tuple[bytes, ...] = ()
    escalated: tuple[bytes, ...] = ()
    cancelled: tuple[str, ...] = ()


class DispatchPartitions:
    """Owner of the partition loop over the events topic.

    No position is stored: a partition is folded from its first kept event at each assignment, and the ledger read
    beside it. `revoked` is called on the loop's thread and returns when nothing of the partition is worked on.
    """

    def __init__(
        self,
        log: Log,
        topics: Topics,
        *,
        assigned: Callable[[int, Assigned], None],
        news: Callable[[int, News], None],
        revoked: Callable[[int], None],
    ) -> None:
        self._log = log
        self._topics: Final = topics
        self._on_assigned = assigned
        self._on_news = news
        self._on_revoked = revoked
        self._known: dict[int, dict[bytes, Followed]] = {}

    def restore(self, partition: int) -> int:
        """Reads the events of the partition to their present end, and the ledger to where it ended before that: so
        every entry that is read belongs to an intent that is known."""
        ledger = self._log.bounds(self._topics.attempts, partition)
        events = self._log.bounds(self._topics.events, partition)
        known = self._known[partition] = {}
        for record in read_range(self._log, self._topics.events, partition, events.first, events.end):
            _take(known, record)
        calls = tuple(one for each in known.values() for one in each.calls.values())
        rows: dict[bytes, Row] = {one.hash: EMPTY for one in calls}
        for record in read_range(self._log, self._topics.attempts, partition, ledger.first, ledger.end):
            _enter(rows, record)
        cancelled = frozenset(key.decode() for key, one in known.items() if one.cancelled and one.calls)
        self._on_assigned(partition, Assigned(calls, cancelled, rows, ledger.end, events.end))
        return events.end

    def fold(self, partition: int, records: Sequence[Record], position: int) -> None:
        """Follows the events and hands over what they brought."""
        known = self._known[partition]
        opened: list[Intended] = []
        closed: list[bytes] = []
        escalated: list[bytes] = []
        cancelled: list[str] = []
        for record in records:
            before, after = _take(known, record)
            if after is before:
                continue
            was, now = ({one.hash for one in known.calls.values()} for known in (before, after))
            opened += [one for one in after.calls.values() if one.hash not in was]
            closed += [one.hash for one in before.calls.values() if one.hash not in now]
            escalated += [
                one.hash for one in after.calls.values() if one.escalated and one not in before.calls.values()
            ]
            if after.cancelled and not before.cancelled and record.key is not None:
                cancelled.append(record.key.decode())
        self._on_news(partition, News(position, tuple(opened), tuple(closed), tuple(escalated), tuple(cancelled)))

    def forget(self, partition: int) -> None:
        self._known.pop(partition, None)
        self._on_revoked(partition)


def _take(known: dict[bytes, Followed], record: Record) -> tuple[Followed, Followed]:
    """What was known of the record's trajectory before and after it."""
    before = known.get(record.key, NEW) if record.key is not None else NEW
    try:
        event = decode_event(record.key, record.value, record.headers)
    except ForeignRecord:
        return before, before  # nobody's event; whoever owns the partition for quarantine keeps it
    assert record.key is not None
    after = known[record.key] = follow(before, event)
    return before, after


def _enter(rows: dict[bytes, Row], record: Record) -> None:
    try:
        read = decode_ledger(record.key, record.value, record.headers)
    except ForeignRecord:
        return
    row = rows.get(read.envelope.intent_hash)
    if row is not None:
        rows[read.envelope.intent_hash] = entered(row, read, record.timestamp_ms)
