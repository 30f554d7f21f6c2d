"""The agenda: what is to be said into inboxes, and when. Folded from the events, served by the router (DESIGN §9).

    due      requests for approval that expire and timers by the clock, ranked by the time in milliseconds
    asked    requests for approval that are open, ranked by the time at which they were asked
    outbox   what other trajectories are to be told, ranked by the offset of the event that says it: messages, child
             runs to be begun or cancelled, the end of a child run for its parent

An entry of `due` and `asked` goes when the event that answers it was accepted. One of `outbox` is taken out by whoever
has delivered it. All can be made again from the log; what is then said again is taken once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import orjson
from pydantic import ConfigDict, TypeAdapter

from tracklog.infra.log.port import Record
from tracklog.processors.processor import Seen
from tracklog.processors.writes import Rank, SetFields, Unrank, Write, own_fields
from tracklog.schemas import events as ev
from tracklog.schemas.codec import Event
from tracklog.schemas.head import EMPTY_HEAD, Head, Verdict, advance, judge
from tracklog.schemas.lifecycle import lane_of
from tracklog.schemas.spawn import ChildOf, child_of, ending_of, refused_child, spawned

__all__ = ["ASKED", "DUE", "OUTBOX", "POSTS_MAX", "Agenda", "Entry", "Post", "TrajectoryAgenda", "entry_of", "post_of"]

DUE: Final = "due"
ASKED: Final = "asked"
OUTBOX: Final = "outbox"
FIELD: Final = b"agenda"
NAME: Final = "agenda"
VERSION: Final = 2
POSTS_MAX: Final = 5000
"""Messages that one batch may bring of one trajectory: whoever folds it takes no more records at once."""
_US_PER_MS: Final = 1000


class Entry(NamedTuple):
    """One thing that is open: a timer (`hash` empty) or a request for approval, by name. `due_us` None: for ever."""

    trajectory_id: str
    tenant: str
    name: str
    seq: int
    lane: int
    due_us: int | None
    hash: str = ""
    asked_ms: int = 0

    @property
    def is_timer(self) -> bool:
        return not self.hash


class Post(NamedTuple):
    """Where an event lies that somebody is to be told of.

    A MessageSent says itself whom. `child`: the child run that is to be cancelled for it. `parent`, `spawn`, `hash` and
    `lane`: the parent that is to hear of the end of its child, and the event by which it stated it.
    """

    offset: int
    trajectory_id: str
    seq: int
    child: str = ""
    parent: str = ""
    spawn: int = -1
    hash: str = ""
    lane: int = 0


class TrajectoryAgenda(NamedTuple):
    """Of one trajectory. `posts` are the last that it sent, POSTS_MAX at most. `children`: child runs that it has not
    heard the end of; `parent`: whom its own end is told."""

    trajectory_id: str
    head: Head = EMPTY_HEAD
    open: Mapping[str, Entry] = {}
    posts: tuple[Post, ...] = ()
    children: tuple[str, ...] = ()
    parent: ChildOf | None = None
    ended: bool = False


class Agenda:
    """See `Processor`."""

    name = NAME
    version = VERSION
    reads: frozenset[str] | None = None

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
        was = {} if before is None else before.open
        for name, entry in was.items():
            if after.open.get(name) != entry:
                yield Unrank([DUE, ASKED], member_of(entry))
        for name, entry in after.open.items():
            if was.get(name) == entry:
                continue
            if entry.due_us is not None:
                yield Rank([DUE], member_of(entry), entry.due_us // _US_PER_MS)
            if not entry.is_timer:
                yield Rank([ASKED], member_of(entry), entry.asked_ms)
        written = before.posts[-1].seq if before is not None and before.posts else -1
        for post in after.posts:
            if post.seq > written:
                yield Rank([OUTBOX], orjson.dumps(list(post)).decode(), post.offset)
        stored = _STORED.dump_json(after._replace(posts=after.posts[-1:]))
        yield SetFields(own_fields(after.trajectory_id), {FIELD.decode(): stored})


def member_of(entry: Entry) -> str:
    return orjson.dumps(list(entry)).decode()


def entry_of(member: bytes) -> Entry:
    """The inverse of `member_of`. Raises ValueError for what is none."""
    return Entry(*orjson.loads(member))


def post_of(member: bytes) -> Post:
    """Raises ValueError for what is none."""
    return Post(*orjson.loads(member))


def _accept(state: TrajectoryAgenda, event: Event, record: Record) -> TrajectoryAgenda:
    envelope = event.envelope
    post = Post(record.offset, envelope.trajectory_id, envelope.seq)
    match event.body:
        case ev.ApprovalRequested() as asked:
            entry = _entry(event, f"ask:{asked.call_id}", asked.call_id, asked.expires_at)
            entry = entry._replace(hash=event.hash.hex(), asked_ms=record.timestamp_ms)
            return state._replace(open={**state.open, f"ask:{asked.call_id}": entry})
        case ev.ApprovalResolved(call_id=call_id):
            return state._replace(open=_without(state.open, f"ask:{call_id}"))
        case ev.TimerSet(timer_id=timer_id, due_at=due_at) if due_at is not None:
            entry = _entry(event, f"timer:{timer_id}", timer_id, due_at)
            return state._replace(open={**state.open, f"timer:{timer_id}": entry})
        case ev.TimerFired(timer_id=timer_id):
            return state._replace(open=_without(state.open, f"timer:{timer_id}"))
        case ev.TaskStarted():
            return state._replace(parent=child_of(event))
        case ev.MessageSent(peer=peer):
            children = state.children if spawned(event) is None else (*state.children, peer)
            return _post(state, post)._replace(children=children)
        case ev.MessageReceived(peer=peer) if ending_of(event) is not None:
            return state._replace(children=tuple(one for one in state.children if one != peer))
        case ev.InboxRefused():
            parent = refused_child(event)
            return state if parent is None else _post(state, _told(post, parent))
        case ev.CancelRequested():
            return _abandon(state, post)
        case ev.TaskEnded():
            state = _abandon(state, post)
            state = state if state.parent is None else _post(state, _told(post, state.parent))
            return state._replace(open={}, ended=True, head=state.head._replace(recent=(), lost=()))
        case _:
            return state


def _post(state: TrajectoryAgenda, *posts: Post) -> TrajectoryAgenda:
    return state._replace(posts=(*state.posts[-2 * POSTS_MAX :], *posts))


def _abandon(state: TrajectoryAgenda, post: Post) -> TrajectoryAgenda:
    """Cancels the child runs that it has not heard the end of."""
    return _post(state, *(post._replace(child=child) for child in state.children))._replace(children=())


def _told(post: Post, of: ChildOf) -> Post:
    return post._replace(parent=of.parent.trajectory_id, spawn=of.parent.seq, hash=of.hash.hex(), lane=of.lane)


def _entry(event: Event, key: str, name: str, due_us: int | None) -> Entry:
    envelope = event.envelope
    return Entry(envelope.trajectory_id, envelope.tenant, name, envelope.seq, lane_of(envelope.ext), due_us)


def _without(entries: Mapping[str, Entry], key: str) -> Mapping[str, Entry]:
    return {name: entry for name, entry in entries.items() if name != key} if key in entries else entries


_BYTES: Final = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")
_STORED: Final[TypeAdapter[TrajectoryAgenda]] = TypeAdapter(TrajectoryAgenda, config=_BYTES)
