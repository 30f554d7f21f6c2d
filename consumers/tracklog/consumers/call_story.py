"""Everything that any topic says of one call, in the order in which it was appended, each with its place and verdict.

events     the reply that asked for it, rulings, requests, decisions, intent, doubt, escalation, result; refusals
inbox      outcomes, decisions, settlements and annotations: taken by which event, refused, or not taken yet
attempts   every entry of the ledger: which slot it took, or why it took none
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import merge
from typing import Any, Final, NamedTuple

from tracklog.consumers.copying import appended_ms
from tracklog.consumers.dispatch.slots import EMPTY, Row, entered
from tracklog.consumers.summary import body_text, one_line, summary
from tracklog.consumers.timeline import Entry, Timeline, records_of, timeline
from tracklog.infra.log.port import Log, Record
from tracklog.infra.log.trimmed import check_beginning
from tracklog.producers.calls_made import calls_in, named_calls
from tracklog.producers.lineage import origin_of
from tracklog.schemas import events as ev
from tracklog.schemas import inbox, ledger
from tracklog.schemas.codec import InboxRecord, LedgerRecord, Recorded, decode_inbox, decode_ledger
from tracklog.schemas.errors import ForeignRecord, InputError
from tracklog.schemas.topics import Topics
from tracklog.schemas.values import InboxId

__all__ = ["CallStory", "Chapter", "call_story"]


class Chapter(NamedTuple):
    """One record about the call. `verdict`: what became of it; empty where it simply holds."""

    record: Record
    read: Recorded[Any, Any]
    verdict: str
    text: str


class CallStory(NamedTuple):
    """`trajectory_id` is the one that made the call: of an inherited call, an origin."""

    trajectory_id: str
    call_id: str
    chapters: Sequence[Chapter]


def call_story(log: Log, topics: Topics, trajectory_id: str, call_id: str) -> CallStory:
    """Blocks. `call_id` may be the end of one, as timelines show it, when only one call ends so.

    Raises InputError for a trajectory or a call that is not there, and for an end that several calls have.
    """
    wanted: str | None = trajectory_id
    until, named = sys.maxsize, list[str]()
    while wanted is not None:
        found = timeline(wanted, records_of(log, topics.events, wanted))
        if not found.entries:
            check_beginning(log, topics.events, wanted)
            raise InputError(f"no trajectory {wanted!r} in {topics.events}", hint="see: tracklog list")
        accepted = [entry.event for entry in found.entries if entry.event is not None and entry.accepted]
        had = [event.body for event in accepted if event.envelope.seq <= until]
        own = list(dict.fromkeys(calls_in(had)))
        whole = _whole(call_id, own, wanted)
        if whole is not None:
            return CallStory(wanted, whole, list(_chapters(log, topics, found, whole)))
        named += own
        origin = origin_of(accepted)
        wanted, until = (None, 0) if origin is None else (origin.trajectory_id, origin.seq)
    calls = named_calls(named) or "no calls"
    raise InputError(f"trajectory {trajectory_id!r} has no call {call_id!r}", hint=f"it has {calls}")


def _whole(call_id: str, calls: Sequence[str], trajectory_id: str) -> str | None:
    if call_id in calls:
        return call_id
    end = call_id.removeprefix("…")
    found = [one for one in calls if end and one.endswith(end)]
    if len(found) > 1:
        raise InputError(
            f"{len(found)} calls of trajectory {trajectory_id!r} end with {end!r}",
            hint=f"they are {named_calls(found)}",
        )
    return found[0] if found else None


def _chapters(log: Log, topics: Topics, found: Timeline, call_id: str) -> Iterator[Chapter]:
    """Merged by time; each topic keeps its own order."""
    own = found.state.trajectory_id
    letters = list(_read(log, topics.inbox, own, decode_inbox))
    about = {read.envelope.inbox_id for _, read in letters if _about(read.body, call_id)}
    events = [_of_event(entry, call_id) for entry in found.entries if _concerns(entry, call_id, about)]
    mail = _mail(letters, about, found)
    entries = _entries(_read(log, topics.attempts, own, decode_ledger), call_id)
    return merge(events, mail, entries, key=lambda one: (appended_ms(one.record), _rank(one.read)))


def _rank(read: Recorded[Any, Any]) -> int:
    """Of records of one millisecond, in different topics: what comes of which."""
    return _ORDER.index(read.name) if read.name in _ORDER else len(_ORDER)


_ORDER: Final = (
    *("ModelReplied", "Authorized", "ApprovalRequested", "Decision", "ApprovalResolved", "ToolIntent"),
    *("Attempt", "Pending", "Expired", "Outcome", "Done", "InDoubt", "Escalated", "Settlement", "ToolResult"),
)


def _read(
    log: Log, topic: str, own: str, decode: Callable[..., Recorded[Any, Any]]
) -> Iterator[tuple[Record, Recorded[Any, Any]]]:
    """What can be read under the trajectory's key."""
    for record in records_of(log, topic, own):
        try:
            yield record, decode(record.key, record.value, record.headers)
        except ForeignRecord:
            continue  # nobody's; it names no call


def _concerns(entry: Entry, call_id: str, about: set[InboxId]) -> bool:
    body = None if entry.event is None else entry.event.body
    if isinstance(body, ev.InboxRefused):
        return body.refused in about
    return call_id in calls_in([body]) or getattr(body, "call_id", None) == call_id


def _of_event(entry: Entry, call_id: str) -> Chapter:
    assert entry.event is not None
    body, text = entry.event.body, summary(entry.event)
    if isinstance(body, ev.ModelReplied):
        (call,) = (one for one in body.tool_calls if one.call_id == call_id)
        text = one_line(f"asks for {call.tool}({call.arguments})")
    return Chapter(entry.record, entry.event, "" if entry.accepted else entry.verdict, text)


def _about(body: inbox.InboxBody | None, call_id: str) -> bool:
    return getattr(body, "call_id", None) == call_id


def _mail(letters: Sequence[tuple[Record, InboxRecord]], about: set[InboxId], found: Timeline) -> Iterator[Chapter]:
    taken: dict[InboxId, str] = {}
    for entry in found.entries:
        event = entry.event
        if event is not None and entry.accepted and event.envelope.inbox_id is not None:
            seq = event.envelope.seq
            refused = isinstance(event.body, ev.InboxRefused)
            taken[event.envelope.inbox_id] = f"refused by event {seq}" if refused else f"taken by event {seq}"
    seen: dict[InboxId, tuple[int, InboxRecord]] = {}
    for record, read in letters:
        own = read.envelope.inbox_id
        if own not in about:
            continue
        if own in seen:
            offset, first = seen[own]
            same = (first.name, first.body) == (read.name, read.body)
            verdict = f"the same as at offset {offset}" if same else f"not taken: offset {offset} has its identity"
        elif read.problem:
            verdict = f"cannot be believed: {read.problem}"
        else:
            passed = found.state.inbox.get(own.source, -1) >= own.seq
            over = found.state.ended and not isinstance(read.body, inbox.Annotation)
            missing = "not taken: the trajectory has ended" if over else "not taken yet"
            verdict = taken.get(own, "passed over: one that was sent later was taken" if passed else missing)
        seen.setdefault(own, (record.offset, read))
        yield Chapter(record, read, verdict, _said(read.body))


def _entries(entries: Iterable[tuple[Record, LedgerRecord]], call_id: str) -> Iterator[Chapter]:
    """The row of an intent is folded as dispatchers fold it."""
    rows: dict[bytes, Row] = {}
    for record, read in entries:
        if read.envelope.call_id != call_id:
            continue
        before = rows.get(read.envelope.intent_hash, EMPTY)
        after = rows[read.envelope.intent_hash] = entered(before, read, appended_ms(record))
        yield Chapter(record, read, _entry_verdict(before, after, read), _said(read.body, slot=read.envelope.slot))


def _entry_verdict(before: Row, after: Row, read: LedgerRecord) -> str:
    if read.problem:
        return f"cannot be believed: {read.problem}"
    if after != before:
        return f"takes slot {read.envelope.slot}" if len(after.slots) > len(before.slots) else ""
    if before.done:
        return "too late: the call is done"
    holder = before.holder(read.envelope.slot) if read.envelope.slot > 0 else None
    if holder is None:
        return "out of turn"
    return "again" if holder == read.envelope.nonce else f"too late: slot {read.envelope.slot} is taken"


def _said(body: Any, slot: int = 0) -> str:
    describe = _DESCRIBE.get(type(body))
    return "of a type or version not known here" if describe is None else one_line(describe(body, slot))


_DESCRIBE: Final[Mapping[type, Callable[[Any, int], str]]] = {
    inbox.Outcome: lambda body, _: f"{body.status} ({body.settled}), slot {body.slot} · {body_text(body.output)}",
    inbox.Decision: lambda body, _: f"{body.choice} by {body.approver} {body.reason}",
    inbox.Settlement: lambda body, _: f"{body.status} by {body.by} {body.reason} · {body_text(body.output)}",
    inbox.Annotation: lambda body, _: f"{body.name} = {body_text(body.value)} by {body.source}",
    ledger.Attempt: lambda body, slot: f"{body.dispatcher} bids for slot {slot}, to start before {body.not_after} us",
    ledger.Expired: lambda body, slot: f"{body.dispatcher}: nobody is to try in slot {slot} {body.reason}",
    ledger.Done: lambda body, slot: f"{body.dispatcher} has sent the outcome of slot {slot}: {body.status}",
    ledger.Pending: lambda body, slot: f"{body.dispatcher}: the tool answers by itself until {body.until} us",
}
