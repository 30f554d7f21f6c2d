"""The agenda: what is to be said into inboxes, and when. Folded from the events, served by the router (DESIGN §9).

    due       requests for approval that expire and timers by the clock, ranked by the time in milliseconds
    outbox    what other trajectories are to be told (`outbox`), ranked by the offset of the event that says it
    asked, doubted            held calls that wait for a decision, and calls that a person is asked about; for people
    asked:T, doubted:T        the same of one tenant
    untold    of both, those that webhooks have not told of yet, ranked by the offset of the event that asks

An entry goes when the event that answers it was accepted; one of `due`, `outbox` and `untold` sooner, by whoever has
posted or told it.
All can be made again from the log; what is then said again is taken once. The lists for people have one rank, so their
members are in the order of their bytes, which begin with the time: pages are cut at any place, however many are open.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

import orjson
from pydantic import ConfigDict, TypeAdapter

from tracklog.infra.log.port import Record
from tracklog.processors.outbox import Outbox
from tracklog.processors.processor import Seen
from tracklog.processors.writes import Rank, SetFields, Unrank, Write, own_fields
from tracklog.schemas import events as ev
from tracklog.schemas.approvals import Request, request_of
from tracklog.schemas.codec import Event
from tracklog.schemas.head import EMPTY_HEAD, Head, Verdict, advance, judge
from tracklog.schemas.lifecycle import lane_of
from tracklog.schemas.values import Place

__all__ = [
    "ASKED",
    "DOUBTED",
    "DUE",
    "OUTBOX",
    "UNTOLD",
    "Agenda",
    "Entry",
    "TrajectoryAgenda",
    "Waiting",
    "entry_of",
    "list_of",
    "waiting_of",
]

DUE: Final = "due"
ASKED: Final = "asked"
DOUBTED: Final = "doubted"
OUTBOX: Final = "outbox"
UNTOLD: Final = "untold"
FIELD: Final = b"agenda"
NAME: Final = "agenda"
VERSION: Final = 4
ARGUMENTS_CHARS_MAX: Final = 500
"""Of the arguments of a call that waits: for people, who see the whole by looking at the call."""
_US_PER_MS: Final = 1000
T = TypeVar("T")


class Entry(NamedTuple):
    """What becomes due: a timer (`hash` empty) or a request for approval, by name. `since_ms`: when it was set."""

    trajectory_id: str
    tenant: str
    name: str
    seq: int
    lane: int
    due_us: int
    hash: str = ""
    since_ms: int = 0

    @property
    def is_timer(self) -> bool:
        return not self.hash


class Waiting(NamedTuple):
    """A call that waits for a person: a held one, or one that may have happened.

    `hash` is of the request or of the intent, in hex as `argument_hash`. `step`: how often others were asked before;
    `offset`: of the event by which it waits. `arguments`: as recorded, so without what the settings take out; cut.
    """

    kind: str
    trajectory_id: str
    tenant: str
    call_id: str
    tool: str
    since_ms: int
    hash: str
    argument_hash: str
    reason: str = ""
    may_approve: tuple[str, ...] = ()
    requester_may: bool = False
    expires_us: int | None = None
    then: int = 0
    step: int = 0
    offset: int = 0
    arguments: str = ""

    @property
    def place(self) -> str:
        """Where it stands in its list: the oldest first, and each at a place of its own."""
        return f"{self.since_ms:013d}-{self.hash[:16]}"

    @property
    def lists(self) -> list[str]:
        return [self.kind, list_of(self.kind, self.tenant)]


class Intended(NamedTuple):
    """What is told of an open intent, should a person be asked about it."""

    tool: str
    hash: str
    argument_hash: str
    arguments: str = ""


class TrajectoryAgenda(NamedTuple):
    """Of one trajectory. `proposed`: the arguments of calls that have no result yet, cut."""

    trajectory_id: str
    head: Head = EMPTY_HEAD
    due: Mapping[str, Entry] = {}
    waiting: Mapping[str, Waiting] = {}
    intents: Mapping[str, Intended] = {}
    outbox: Outbox = Outbox()
    ended: bool = False
    proposed: Mapping[str, str] = {}


class Agenda:
    """See `Processor`."""

    name = NAME
    version = VERSION
    reads: frozenset[str] | None = None
    leaving = None

    def start(self, trajectory_id: str) -> TrajectoryAgenda:
        return TrajectoryAgenda(trajectory_id)

    def apply(self, state: TrajectoryAgenda, seen: Seen) -> TrajectoryAgenda:
        event = seen.event
        judgement = judge(state.head, event)
        head = advance(state.head, event, judgement)
        if judgement.verdict is not Verdict.ACCEPTED:
            return state._replace(head=head)
        return _accept(state._replace(head=head), event, seen.record)

    def load(self, trajectory_id: str, fields: Mapping[bytes, bytes]) -> TrajectoryAgenda:
        return _STORED.validate_json(fields[FIELD])

    def writes(
        self, before: TrajectoryAgenda | None, after: TrajectoryAgenda, records: Sequence[Record]
    ) -> Iterator[Write]:
        due, waited = ({}, {}) if before is None else (before.due, before.waiting)
        for entry in _gone(due, after.due):
            yield Unrank([DUE], member_of(entry))
        for entry in _gone(after.due, due):
            yield Rank([DUE], member_of(entry), entry.due_us // _US_PER_MS)
        for one in _gone(waited, after.waiting):
            yield Unrank([*one.lists, UNTOLD], shown_as(one))
        for one in _gone(after.waiting, waited):
            yield Rank(one.lists, shown_as(one), 0)
            yield Rank([UNTOLD], shown_as(one), one.offset)
        written = before.outbox.posts[-1].seq if before is not None and before.outbox.posts else -1
        for post in after.outbox.posts:
            if post.seq > written:
                yield Rank([OUTBOX], orjson.dumps(list(post)).decode(), post.offset)
        stored = _STORED.dump_json(after._replace(outbox=after.outbox._replace(posts=after.outbox.posts[-1:])))
        yield SetFields(own_fields(after.trajectory_id), {FIELD.decode(): stored})


def member_of(entry: Entry) -> str:
    return orjson.dumps(list(entry)).decode()


def entry_of(member: bytes) -> Entry:
    """The inverse of `member_of`. Raises ValueError for what is none."""
    return Entry(*orjson.loads(member))


def list_of(kind: str, tenant: str | None) -> str:
    """The list of those of a tenant, or of all."""
    return kind if tenant is None else f"{kind}:{tenant}"


def shown_as(one: Waiting) -> str:
    """The member of its lists."""
    return f"{one.place} {orjson.dumps(list(one)).decode()}"


def waiting_of(member: bytes) -> Waiting:
    """The inverse of `shown_as`. Raises ValueError for what is none."""
    found = Waiting(*orjson.loads(member.partition(b" ")[2]))
    return found._replace(may_approve=tuple(found.may_approve))


def _gone(before: Mapping[str, T], after: Mapping[str, T]) -> Iterator[T]:
    """Those of the first that are not in the second, or are others there."""
    return (one for name, one in before.items() if after.get(name) != one)


def _accept(state: TrajectoryAgenda, event: Event, record: Record) -> TrajectoryAgenda:
    envelope = event.envelope
    state = state._replace(outbox=state.outbox.after(event, record))
    match event.body:
        case ev.ModelReplied(tool_calls=calls) if calls:
            return state._replace(proposed={**state.proposed, **{one.call_id: _cut(one.arguments) for one in calls}})
        case ev.ApprovalRequested(call_id=call_id) as body:
            request = request_of(body, event.hash, envelope.seq, envelope.ext)
            held = _held(event, call_id, request, record)._replace(arguments=state.proposed.get(call_id, ""))
            return _ask(state, f"ask:{call_id}", held, request)
        case ev.ApprovalResolved(call_id=call_id) as resolved:
            name, edited = f"ask:{call_id}", resolved.arguments
            state = state._replace(due=_without(state.due, name), waiting=_without(state.waiting, name))
            return state if edited is None else state._replace(proposed={**state.proposed, call_id: _cut(edited.text)})
        case ev.ToolIntent(call_id=call_id) as intent if intent.place is not Place.RECORDED:
            arguments = intent.arguments
            told = Intended(intent.tool, event.hash.hex(), arguments.hash.hex(), _cut(arguments.text))
            waiting = _without(state.waiting, f"doubt:{call_id}")
            return state._replace(intents={**state.intents, call_id: told}, waiting=waiting)
        case ev.Escalated(call_id=call_id) as escalated if call_id in state.intents:
            name, one = f"doubt:{call_id}", _doubted(event, escalated, state.intents[call_id], record)
            return state._replace(waiting={**state.waiting, name: one})
        case ev.ToolResult(call_id=call_id):
            waiting = _without(state.waiting, f"doubt:{call_id}")
            intents, proposed = _without(state.intents, call_id), _without(state.proposed, call_id)
            return state._replace(intents=intents, waiting=waiting, proposed=proposed)
        case ev.TimerSet(timer_id=timer_id, due_at=due_at) if due_at is not None:
            entry = _entry(event, timer_id, due_at, record.timestamp_ms)
            return state._replace(due={**state.due, f"timer:{timer_id}": entry})
        case ev.TimerFired(timer_id=timer_id):
            return state._replace(due=_without(state.due, f"timer:{timer_id}"))
        case ev.TaskEnded():
            head = state.head._replace(recent=(), lost=())
            return state._replace(due={}, waiting={}, intents={}, proposed={}, ended=True, head=head)
        case _:
            return state


def _ask(state: TrajectoryAgenda, name: str, one: Waiting, request: Request) -> TrajectoryAgenda:
    """With a request that is open, in the place of the one before it about the same call."""
    due = _without(state.due, name)
    if request.expires_at is not None:
        about = one.trajectory_id, one.tenant, one.call_id
        due = {**due, name: Entry(*about, request.seq, request.lane, request.expires_at, one.hash, one.since_ms)}
    return state._replace(due=due, waiting={**state.waiting, name: one})


def _held(event: Event, call_id: str, request: Request, record: Record) -> Waiting:
    return Waiting(
        kind=ASKED,
        trajectory_id=event.envelope.trajectory_id,
        tenant=event.envelope.tenant,
        call_id=call_id,
        tool=request.tool,
        since_ms=record.timestamp_ms,
        hash=request.hash.hex(),
        argument_hash=request.argument_hash.hex(),
        reason=request.reason,
        may_approve=request.may_approve,
        requester_may=request.requester_may,
        expires_us=request.expires_at,
        then=len(request.then),
        step=request.step,
        offset=record.offset,
    )


def _doubted(event: Event, body: ev.Escalated, intended: Intended, record: Record) -> Waiting:
    about = event.envelope.trajectory_id, event.envelope.tenant, body.call_id
    return Waiting(
        DOUBTED,
        *about,
        intended.tool,
        record.timestamp_ms,
        intended.hash,
        intended.argument_hash,
        body.tried,
        offset=record.offset,
        arguments=intended.arguments,
    )


def _entry(event: Event, name: str, due_us: int, since_ms: int) -> Entry:
    envelope = event.envelope
    lane = lane_of(envelope.ext)
    return Entry(envelope.trajectory_id, envelope.tenant, name, envelope.seq, lane, due_us, since_ms=since_ms)


def _cut(text: str) -> str:
    return text if len(text) <= ARGUMENTS_CHARS_MAX else text[: ARGUMENTS_CHARS_MAX - 1] + "…"


def _without(entries: Mapping[str, T], key: str) -> Mapping[str, T]:
    return {name: entry for name, entry in entries.items() if name != key} if key in entries else entries


_BYTES: Final = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")
_STORED: Final[TypeAdapter[TrajectoryAgenda]] = TypeAdapter(TrajectoryAgenda, config=_BYTES)
