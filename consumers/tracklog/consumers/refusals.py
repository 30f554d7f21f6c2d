"""What was said to trajectories and not taken, read from the log: what owners refused, and what nobody will ever take.

owners refused it       an InboxRefused says so, with its words
nobody will take it     no event has, and none can: there is no such trajectory, it has ended, the record has the
                        identity of an earlier one and says something else, or its bytes cannot be believed
no intent               an entry of the attempt ledger about a call that no accepted intent made: dispatchers pass it by

A record that came twice as it was is no refusal, nor is one that nobody has taken yet, nor one that asked for what is
so anyway: a second cancel of a run that was cancelled, a parent's cancel of a child that has ended, and the end of a
child whose parent has ended and told it to.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, NamedTuple

from tracklog.infra.log.partitioner import partition_of
from tracklog.infra.log.port import Log, Record
from tracklog.infra.log.ranges import read_range
from tracklog.schemas import events as ev
from tracklog.schemas import inbox
from tracklog.schemas.codec import InboxRecord, decode_event, decode_inbox, decode_ledger
from tracklog.schemas.errors import ForeignRecord
from tracklog.schemas.head import EMPTY_HEAD, Head, Verdict, advance, judge
from tracklog.schemas.spawn import EXT_ENDED, FROM
from tracklog.schemas.topics import Topics
from tracklog.schemas.values import Ending, InboxId

__all__ = ["NEWEST_MAX", "Reason", "Refusal", "altered", "reason_of", "refusals"]

NEWEST_MAX: Final = 10_000
"""Records of a partition of the inbox that are looked at for altered ones: about a second for twelve partitions."""


class Reason(StrEnum):
    """Why, in a word to count by."""

    ENDED = "ended"
    NOT_OPEN = "not-open"
    OTHER_INTENT = "other-intent"
    ALTERED = "altered"
    ALREADY = "already"
    MAY_NOT = "may-not"
    UNFIT = "unfit"
    NO_TRAJECTORY = "no-trajectory"
    PASSED_OVER = "passed-over"
    UNREADABLE = "unreadable"
    NO_INTENT = "no-intent"
    OTHER = "other"


_WORDS: Final[tuple[tuple[str, Reason], ...]] = (
    (r"has ended", Reason.ENDED),
    (r"answers another (intent|request)", Reason.OTHER_INTENT),
    (r"already|was not stopped", Reason.ALREADY),
    (r"arguments are not taken|does not expire", Reason.UNFIT),
    (
        r"not open|does not wait|nobody was asked|is waited for|waits for it|no such timer|not asked for",
        Reason.NOT_OPEN,
    ),
    (r"^about call ", Reason.MAY_NOT),
)
"""In what owners say; the first that is found."""


class Refusal(NamedTuple):
    """`topic` to `offset`: where it lies, None where that is not known; `event_seq`, `event_offset`: of the
    InboxRefused about it. `trajectory_id` may be that of none."""

    trajectory_id: str
    tenant: str
    kind: str
    source: str
    seq: int | None
    call_id: str
    reason: Reason
    words: str
    topic: str
    partition: int
    offset: int | None
    event_seq: int | None
    event_offset: int | None
    timestamp_ms: int


@dataclass(slots=True)
class _Known:
    head: Head = EMPTY_HEAD
    ending: Ending | None = None
    highest: dict[str, int] = field(default_factory=dict)
    taken: set[InboxId] = field(default_factory=set)
    refused: list[tuple[Record, int, str, int | None, ev.InboxRefused]] = field(default_factory=list)
    intents: set[bytes] = field(default_factory=set)


def reason_of(words: str) -> Reason:
    return next((reason for pattern, reason in _WORDS if re.search(pattern, words)), Reason.OTHER)


def refusals(log: Log, topics: Topics, trajectory_id: str | None = None) -> Iterator[Refusal]:
    """Of all trajectories, or of one, partition by partition. Blocks: it reads what the log has of them."""
    count = log.partition_count(topics.events)
    chosen = range(count) if trajectory_id is None else (partition_of(trajectory_id.encode(), count),)
    only = None if trajectory_id is None else trajectory_id.encode()
    for partition in chosen:
        letters = list(_read(log, topics.inbox, partition, only))  # before the events: what they took is then there
        entries = list(_read(log, topics.attempts, partition, only))
        known = _follow(_read(log, topics.events, partition, only))
        yield from _from_inbox(letters, known)
        yield from _from_ledger(entries, known)


def altered(log: Log, topics: Topics) -> Iterator[Refusal]:
    """Records that have the identity of an earlier one and say something else, among the newest NEWEST_MAX of each
    partition of the inbox. No owner refuses them: it takes the first, and passes over what has its identity. Blocks."""
    for partition in range(log.partition_count(topics.inbox)):
        letters = list(_read(log, topics.inbox, partition, None, newest_max=NEWEST_MAX))
        yield from (one for one in _from_inbox(letters, {}) if one.reason is Reason.ALTERED)


def _read(
    log: Log, topic: str, partition: int, only: bytes | None, *, newest_max: int | None = None
) -> Iterator[Record]:
    bounds = log.bounds(topic, partition)
    first = bounds.first if newest_max is None else max(bounds.first, bounds.end - newest_max)
    for record in read_range(log, topic, partition, first, bounds.end, bounds=bounds):
        if record.key is not None and only in (None, record.key):
            yield record


def _follow(records: Iterator[Record]) -> dict[bytes, _Known]:
    """By key, what its accepted events took, refused and intended."""
    found: dict[bytes, _Known] = defaultdict(_Known)
    for record in records:
        try:
            event = decode_event(record.key, record.value, record.headers)
        except ForeignRecord:
            continue
        assert record.key is not None
        known, envelope = found[record.key], event.envelope
        judgement = judge(known.head, event)
        known.head = advance(known.head, event, judgement)
        if judgement.verdict is not Verdict.ACCEPTED:
            continue
        if envelope.inbox_id is not None:
            known.taken.add(envelope.inbox_id)
            source = envelope.inbox_id.source
            known.highest[source] = max(known.highest.get(source, -1), envelope.inbox_id.seq)
        if isinstance(event.body, ev.InboxRefused):
            known.refused.append((record, envelope.seq, envelope.tenant, envelope.inbox_position, event.body))
        elif isinstance(event.body, ev.ToolIntent):
            known.intents.add(event.hash)
        elif isinstance(event.body, ev.TaskEnded):
            known.ending = event.body.ending
    return found


def _from_inbox(letters: list[Record], known: dict[bytes, _Known]) -> Iterator[Refusal]:
    first: dict[tuple[bytes, InboxId], tuple[Record, InboxRecord]] = {}
    for record in letters:
        assert record.key is not None
        try:
            read = decode_inbox(record.key, record.value, record.headers)
        except ForeignRecord as error:
            yield _unreadable(record, error.message)
            continue
        before = first.setdefault((record.key, read.envelope.inbox_id), (record, read))
        why = _untaken(record, read, known.get(record.key), before)
        if why is not None:
            yield _refusal(record, read, *why)
    for key, one in known.items():
        for record, seq, tenant, position, body in one.refused:
            _, letter = first.get((key, body.refused), (None, None))
            if letter is not None and _is_so_anyway(letter, one):
                continue
            yield Refusal(
                key.decode(),
                tenant,
                body.kind,
                body.refused.source,
                body.refused.seq,
                _call_of(letter.body) if letter is not None else "",
                reason_of(body.reason),
                body.reason,
                "inbox",
                record.partition,
                position,
                seq,
                record.offset,
                record.timestamp_ms,
            )


def _untaken(
    record: Record, read: InboxRecord, known: _Known | None, before: tuple[Record, InboxRecord]
) -> tuple[Reason, str] | None:
    """Why no event has taken a record, and none will; None when one has, or may."""
    own, (first, earlier) = read.envelope.inbox_id, before
    if read.problem:
        return Reason.UNREADABLE, read.problem
    if first is not record:
        same = (read.name, read.body) == (earlier.name, earlier.body)
        return None if same else (Reason.ALTERED, f"offset {first.offset} has its identity, and says something else")
    if known is None:
        is_new = isinstance(read.body, inbox.Submit)
        return None if is_new else (Reason.NO_TRAJECTORY, "there is no such trajectory")
    if own in known.taken or _is_so_anyway(read, known):
        return None
    if known.highest.get(own.source, -1) >= own.seq:
        return Reason.PASSED_OVER, "one that its source sent later was taken"
    if known.ending is not None and not isinstance(read.body, inbox.Annotation):  # those are taken at any time
        return Reason.ENDED, "the trajectory has ended, and nobody has opened it since"
    return None


def _is_so_anyway(read: InboxRecord, known: _Known) -> bool:
    """Whether an ended trajectory had nothing to take of it, and nobody is kept from anything."""
    if known.ending is None:
        return False
    if isinstance(read.body, inbox.Cancel):
        return known.ending is Ending.CANCELLED or read.envelope.inbox_id.source.startswith(FROM)
    return isinstance(read.body, inbox.Outcome) and EXT_ENDED in read.envelope.ext


def _from_ledger(entries: list[Record], known: dict[bytes, _Known]) -> Iterator[Refusal]:
    for record in entries:
        assert record.key is not None
        try:
            read = decode_ledger(record.key, record.value, record.headers)
        except ForeignRecord as error:
            yield _unreadable(record, error.message)
            continue
        one = known.get(record.key)
        if read.problem:
            yield _refusal(record, read, Reason.UNREADABLE, read.problem)
        elif one is None or read.envelope.intent_hash not in one.intents:
            yield _refusal(record, read, Reason.NO_INTENT, "no accepted intent has made this call")


def _refusal(record: Record, read: Any, reason: Reason, words: str) -> Refusal:
    """Of a record that no event is about."""
    envelope = read.envelope
    own: InboxId | None = getattr(envelope, "inbox_id", None)
    call_id = _call_of(read.body) if own is not None else envelope.call_id
    return Refusal(
        envelope.trajectory_id,
        envelope.tenant,
        read.name,
        own.source if own is not None else getattr(read.body, "dispatcher", ""),
        own.seq if own is not None else None,
        call_id,
        reason,
        words,
        "inbox" if own is not None else "attempts",
        record.partition,
        record.offset,
        None,
        None,
        record.timestamp_ms,
    )


def _unreadable(record: Record, words: str) -> Refusal:
    key, topic = (record.key or b"").decode(errors="replace"), record.topic.rpartition(".")[2]
    where = (topic, record.partition, record.offset, None, None, record.timestamp_ms)
    return Refusal(key, "", "unknown", "", None, "", Reason.UNREADABLE, words, *where)


def _call_of(body: object) -> str:
    return getattr(body, "call_id", None) or ""
