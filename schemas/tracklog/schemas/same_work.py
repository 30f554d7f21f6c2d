"""Whether two histories did the same work (DESIGN §7): a disturbed run compared with an undisturbed one.

A history is the accepted events of one trajectory, in order. Compared are the events but ownership and checkpoints, one
by one: type, turn, causes and body. Not compared, because a takeover or a second run changes them and no work:

    envelope       trajectory and tenant, seq, epoch, event id, lamport, times, inbox id and position, key, ext
    OwnershipClaimed, OwnershipReleased                  left out as a whole
    CheckpointTaken                                      left out as a whole: when one is taken rests on measured time
    times          `not_after`, `expires_at`, `due_at`: only whether there is one. `duration_ms`, `wall_ms`: not at all
    ToolIntent     `idempotency_key`: only whether there is one
    ToolResult     `settled`, `attempts`: how the outcome came to be known; the outcome itself is compared
    InboxRefused   the inbox id; kind and reason are compared
    Observed       the value of clock, random and id: each run draws its own

Whatever points to an event of the same trajectory (by seq, or by its hash) is compared by the ordinal of that
event, so claims in between do not shift it. Everything else counts, also hashes of content, and that a call
was in doubt or a person was asked. Events of other trajectories are compared by trajectory and seq.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any, Final, NamedTuple

from tracklog.schemas import events as ev
from tracklog.schemas.codec import Event
from tracklog.schemas.errors import UnknownSchema
from tracklog.schemas.values import ContextEdit, ObservedKind, Ref, Value

Plain = Any
"""None, bool, int, str, and tuples and dicts of these."""

NO_WORK: Final = (ev.OwnershipClaimed, ev.OwnershipReleased, ev.CheckpointTaken)
NOTHING: Final = "(nothing)"
"""Stands for an event or a field that only the other side has."""


class Work(NamedTuple):
    """One event as it is compared; equal when the work is."""

    type: str
    content: Mapping[str, Plain]


class Difference(NamedTuple):
    """The first one. `ordinal` counts events but ownership; `field` is dotted, empty when the types differ."""

    ordinal: int
    type: str
    field: str
    left: Plain
    right: Plain
    left_seq: int | None
    right_seq: int | None

    def __str__(self) -> str:
        what = f"{self.type}.{self.field}" if self.field else "the type of the event"
        seqs = " and ".join("none" if seq is None else str(seq) for seq in (self.left_seq, self.right_seq))
        return f"event {self.ordinal} (seq {seqs}): {what} is {self.left!r} on the left and {self.right!r} on the right"


def same_work(left: Sequence[Event], right: Sequence[Event]) -> Difference | None:
    """None when the two did the same work, else the first difference. Raises UnknownSchema, see `work_of`."""
    books = (_Book(left), _Book(right))
    for ordinal, (a, b) in enumerate(zip_longest(*(book.work() for book in books))):
        if a != b:
            seqs = (books[0].seq_of(ordinal), books[1].seq_of(ordinal))
            return Difference(ordinal, *_first_difference(a, b), *seqs)
    return None


def work_of(events: Sequence[Event]) -> tuple[Work, ...]:
    """The events but ownership in the form in which they are compared.

    Raises UnknownSchema for an event of a type or version not known here: nothing can be said about it.
    """
    return tuple(_Book(events).work())


def _first_difference(a: Work | None, b: Work | None) -> tuple[str, str, Plain, Plain]:
    """(type, field, left, right) of two that are not equal."""
    types = (NOTHING if a is None else a.type, NOTHING if b is None else b.type)
    if a is None or b is None or a.type != b.type:
        return (types[0], "", *types)
    return (a.type, *next(_fields_that_differ(a.content, b.content, "")))


def _fields_that_differ(left: Plain, right: Plain, at: str) -> Iterator[tuple[str, Plain, Plain]]:
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        for name in [*left, *(name for name in right if name not in left)]:
            here = f"{at}.{name}" if at else name
            yield from _fields_that_differ(left.get(name, NOTHING), right.get(name, NOTHING), here)
    elif isinstance(left, tuple) and isinstance(right, tuple):
        for number, (a, b) in enumerate(zip_longest(left, right, fillvalue=NOTHING)):
            yield from _fields_that_differ(a, b, f"{at}[{number}]")
    elif left != right:
        yield at, left, right


class _Book:
    """Finds the ordinal of an event by its seq or its hash."""

    def __init__(self, events: Sequence[Event]) -> None:
        self.events = [event for event in events if not isinstance(event.body, NO_WORK)]
        self.seqs = [event.envelope.seq for event in self.events]
        self.by_seq = {seq: ordinal for ordinal, seq in enumerate(self.seqs)}
        self.by_hash = {event.hash: ordinal for ordinal, event in enumerate(self.events)}
        self.own = events[0].envelope.trajectory_id if events else ""

    def work(self) -> Iterator[Work]:
        return (Work(event.name, self.content(event)) for event in self.events)

    def seq_of(self, ordinal: int) -> int | None:
        return self.seqs[ordinal] if ordinal < len(self.seqs) else None

    def content(self, event: Event) -> dict[str, Plain]:
        if event.body is None:
            raise UnknownSchema(
                f"event {event.envelope.seq} of {self.own!r} is a {event.name} of a version not known here",
                hint="compare with a Tracklog that knows it",
            )
        bend = _BENT.get(type(event.body))
        content = {} if bend is None else bend(self, event.body)
        turn, causes = event.envelope.turn, self.plain(event.envelope.causes)
        return {"turn": turn, "causes": causes, **self.fields(event.body), **content}

    def fields(self, value: Value) -> dict[str, Plain]:
        chosen = {name: getattr(value, name) for name in type(value).model_fields if name not in _LEFT_OUT}
        return {name: _is_set(item) if name in _PRESENCE else self.plain(item) for name, item in chosen.items()}

    def plain(self, value: Any) -> Plain:
        if isinstance(value, Ref):
            return self.seq(value.seq) if value.trajectory_id == self.own else (value.trajectory_id, value.seq)
        if isinstance(value, ContextEdit):
            return self.edit(value)
        if isinstance(value, Value):
            return self.fields(value)
        if isinstance(value, bytes):
            return f"event {self.by_hash[value]}" if value in self.by_hash else value.hex()
        if isinstance(value, tuple):
            return tuple(self.plain(item) for item in value)
        if isinstance(value, Mapping):
            return {key: self.plain(item) for key, item in value.items()}
        return value

    def edit(self, edit: ContextEdit) -> dict[str, Plain]:
        inside = edit.trajectory_id is None or edit.trajectory_id == self.own
        seqs = tuple(self.seq(seq) for seq in edit.seqs) if inside else edit.seqs
        return {"op": edit.op, "count": edit.count, "of": None if inside else edit.trajectory_id, "seqs": seqs}

    def seq(self, seq: int) -> Plain:
        return f"event {self.by_seq[seq]}" if seq in self.by_seq else f"seq {seq}, not in this history"


def _is_set(value: Any) -> bool:
    return value is not None and value != ""


def _observed(book: _Book, body: ev.Observed) -> dict[str, Plain]:
    return {"value": None} if body.kind in _DRAWN_ANEW else {}


_PRESENCE: Final = frozenset({"not_after", "expires_at", "due_at", "idempotency_key"})
_LEFT_OUT: Final = frozenset({"duration_ms", "wall_ms"})
_DRAWN_ANEW: Final = frozenset({ObservedKind.CLOCK, ObservedKind.RANDOM, ObservedKind.ID})
_BENT: Final[Mapping[type, Callable[[_Book, Any], dict[str, Plain]]]] = {
    ev.InboxRefused: lambda book, body: {"refused": None},
    ev.Observed: _observed,
    ev.ToolResult: lambda book, body: {"settled": None, "attempts": None},
}
