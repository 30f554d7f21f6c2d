"""A context as edits of the one before it, so that every message is recorded once (DESIGN §4). Pure.

A program keeps its messages as it always did and gives all of them at every turn. Those that an event holds
already (a reply, a result, what was said before) are named by that event; the others are new.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from functools import cached_property
from itertools import groupby
from typing import Any, Final, NamedTuple

import orjson

from tracklog.producers.importers.shape import content_of, shape_of
from tracklog.producers.importers.transcript import seen_hash, spoken_message
from tracklog.producers.journal import Journal, edited, edits_row
from tracklog.producers.places import Places
from tracklog.schemas.errors import InvalidEvent
from tracklog.schemas.redaction import Redaction
from tracklog.schemas.values import ContextEdit, EditOp, Role

__all__ = ["Assembly", "Heard", "Message", "Reading", "heard"]

Message = Mapping[str, Any]
"""In the chat-completions form."""

_ROLES: Final[Mapping[str, Role]] = {"user": Role.USER, "system": Role.SYSTEM, "developer": Role.SYSTEM}


class Heard(NamedTuple):
    """A message as its event keeps it: who spoke, the content, and what is beside that."""

    peer: str
    role: Role
    text: str
    media_type: str
    shape: str


class Assembly:
    """The events that hold messages, and the last context."""

    def __init__(self, places: Places | None = None, journal: Journal | None = None) -> None:
        self._places = places if places is not None else Places("")
        self._events: dict[bytes, list[int]] = {}
        self._journal = journal
        self._before: list[bytes] = []
        """The messages of the last context, and beside it where each is."""
        self._at: list[int] = []
        self._said: Counter[bytes] = Counter()
        """How often the last context has each message."""

    def know(self, seen: bytes, place: int) -> None:
        """The event at this place holds the message with this hash."""
        self._events.setdefault(seen, []).append(place)
        if self._journal is not None:
            self._journal.add("know", b64encode(seen).decode(), place)

    def restart(self) -> None:
        """The next context is no edit of the last one: a fork names all that it inherits."""
        self._before, self._at, self._said = [], [], Counter()

    def recall(self, rows: Sequence[Any]) -> None:
        """Takes in what a journal has of an assembly."""
        holds: dict[int, bytes] = {}
        context: tuple[int, ...] = ()
        for what, *row in rows:
            if what == "know":
                holds[row[1]] = b64decode(row[0])
                self._events.setdefault(holds[row[1]], []).append(row[1])
            elif what == "edits":
                context = edited(context, row[0])
        self._before, self._at = [holds[seq] for seq in context], list(context)
        self._said = Counter(self._before)

    def new(self, hashes: Sequence[bytes]) -> list[int]:
        """Positions of the messages that no event holds; a message said twice has two events."""
        kept = _common_prefix(self._before, hashes)
        wanted: Counter[bytes] = Counter()
        said = self._said if kept == len(self._before) else Counter(hashes[:kept])
        positions = []
        for position in range(kept, len(hashes)):
            seen = hashes[position]
            wanted[seen] += 1
            if said[seen] + wanted[seen] > len(self._events.get(seen, ())):
                positions.append(position)
        return positions

    def build(self, hashes: Sequence[bytes]) -> tuple[ContextEdit, ...]:
        """The edits that make this context of the last one. Every message must be known."""
        kept = _common_prefix(self._before, hashes)
        steps = tuple(self._steps(hashes, kept))
        if kept == len(self._before):  # it only grew, as nearly every context does: nothing is walked again
            self._said.update(hashes[kept:])
            self._at += [place for step in steps for place in step.places]
        else:
            self._said = Counter(hashes)
            self._at = self._taken(steps)
        self._before = list(hashes)
        edits = tuple(edit for step in steps for edit in self._edits(step))
        if self._journal is not None:
            self._journal.add("edits", edits_row(edits))
        return edits

    def _edits(self, step: _Step) -> Iterator[ContextEdit]:
        """One edit, or one for each trajectory whose events are added."""
        if step.op is not EditOp.ADD:
            yield ContextEdit(op=step.op, count=step.many)
            return
        for inherited, places in groupby(step.places, lambda place: self._origin(place)):
            seqs = tuple(place if place >= 0 else self._places.ref(place).seq for place in places)
            yield ContextEdit(op=EditOp.ADD, trajectory_id=inherited, seqs=seqs)

    def _origin(self, place: int) -> str | None:
        return None if place >= 0 else self._places.ref(place).trajectory_id

    def _steps(self, hashes: Sequence[bytes], kept: int) -> Iterator[_Step]:
        """`kept`: how many messages both contexts begin with."""
        before = self._before
        blocks: list[tuple[str, int, int, int, int]] = [("equal", 0, kept, 0, kept)] if kept else []
        if kept < len(before):
            matcher = SequenceMatcher(None, before[kept:], hashes[kept:], autojunk=False)
            blocks += [(op, i + kept, j + kept, a + kept, b + kept) for op, i, j, a, b in matcher.get_opcodes()]
        elif kept < len(hashes):
            blocks.append(("insert", kept, kept, kept, len(hashes)))
        free = self._free(blocks)
        for op, i, j, a, b in blocks:
            if op == "equal":
                yield _Step(EditOp.KEEP, j - i)
                continue
            if j > i:
                yield _Step(EditOp.DROP, j - i)
            if b > a:
                yield _Step(EditOp.ADD, places=tuple(free[seen].pop(0) for seen in hashes[a:b]))

    def _free(self, blocks: Sequence[tuple[str, int, int, int, int]]) -> dict[bytes, list[int]]:
        """The events of each message that no kept part of the context stands for."""
        return _Free(self._events, self._said, self._at, [(i, j) for op, i, j, _, _ in blocks if op == "equal"])

    def _taken(self, steps: Sequence[_Step]) -> list[int]:
        out: list[int] = []
        cursor = 0
        for step in steps:
            if step.op is EditOp.ADD:
                out += step.places
                continue
            if step.op is EditOp.KEEP:
                out += self._at[cursor : cursor + step.many]
            cursor += step.many
        return out


class _Step(NamedTuple):
    """An edit by places."""

    op: EditOp
    many: int = 0
    places: tuple[int, ...] = ()


class _Free(dict[bytes, list[int]]):
    """Looks a message up when it is asked for: a context is walked only for a message that it has already."""

    def __init__(
        self,
        events: Mapping[bytes, list[int]],
        said: Mapping[bytes, int],
        at: Sequence[int],
        kept: Sequence[tuple[int, int]],
    ) -> None:
        super().__init__()
        self._events = events
        self._said = said
        self._at = at
        self._kept = kept

    def __missing__(self, seen: bytes) -> list[int]:
        if not self._said.get(seen):
            self[seen] = list(self._events[seen])
        else:
            self[seen] = [place for place in self._events[seen] if place not in self._used]
        return self[seen]

    @cached_property
    def _used(self) -> set[int]:
        return {place for i, j in self._kept for place in self._at[i:j]}


def _common_prefix(left: Sequence[bytes], right: Sequence[bytes]) -> int:
    if left == right[: len(left)]:
        return len(left)
    return next(n for n, one in enumerate(left) if n == len(right) or one != right[n])


class Reading:
    """Reads the messages that a program gives: all of them at every turn, of which nearly all were there before.

    What was given is kept as it was, down to the same strings, so that comparing costs next to nothing. A message that
    holds more than text is read each time: to Python, 1 and true are the same.
    """

    def __init__(self, redaction: Redaction | None = None) -> None:
        """`redaction`: what is taken out of each message."""
        self._redaction = redaction
        self._given: list[object] = []
        self._plain: list[dict[str, Any]] = []
        self._hashes: list[bytes] = []

    def read(self, messages: Sequence[Message]) -> tuple[tuple[dict[str, Any], ...], list[bytes]]:
        """(the messages as JSON has them, their hashes). Raises InvalidEvent for one that is no object with a role."""
        given = list(messages)
        for row in (self._given, self._plain, self._hashes):
            del row[len(given) :]
        for position in self._changed(given):
            plain = _read(position, given[position])
            if self._redaction is not None:
                plain = self._redaction.message(plain)
            self._given[position : position + 1] = [_as_it_is(given[position])]
            self._plain[position : position + 1] = [plain]
            self._hashes[position : position + 1] = [seen_hash(plain)]
        return tuple(self._plain), list(self._hashes)

    def _changed(self, given: Sequence[Message]) -> Iterable[int]:
        """Positions of the messages that were not there before, or were others."""
        known = len(self._given)
        if self._given == given[:known]:
            return range(known, len(given))
        return [n for n, message in enumerate(given) if n >= known or self._given[n] != message]


_UNLIKE: Final = object()
"""Equal to nothing that a message can hold."""


def _as_it_is(value: object) -> object:
    """A copy that shares the text; what is neither text nor made of it is unlike everything."""
    if value is None or type(value) is str:
        return value
    if type(value) is dict:
        return {key: _as_it_is(one) for key, one in value.items()}
    if type(value) is list:
        return [_as_it_is(one) for one in value]
    return _UNLIKE


def _read(position: int, message: Message) -> dict[str, Any]:
    try:
        plain = orjson.loads(orjson.dumps(message))
    except TypeError as error:
        raise InvalidEvent(
            f"message {position} of the context is not JSON: {error}", hint="give plain dicts"
        ) from error
    if not isinstance(plain, dict) or not isinstance(plain.get("role"), str) or not plain["role"]:
        raise InvalidEvent(f"message {position} of the context has no role", hint='{"role": ..., "content": ...}')
    return plain


def heard(message: Message) -> Heard:
    """The event's view of a message that is neither a reply nor a result."""
    role = _ROLES.get(message["role"], Role.AGENT)
    content = content_of(message.get("content"))
    plain = spoken_message(role, message.get("content"))
    return Heard(message["role"], role, content.text, content.media_type, shape_of(plain, message))
