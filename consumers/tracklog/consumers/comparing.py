"""Two trajectories side by side: what they share, the first turn where they differ and how, then turn by turn."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import zip_longest
from typing import Final, NamedTuple

from tracklog.consumers.summary import one_line
from tracklog.consumers.turn_work import ASPECTS, NOTHING, WORDS_CHARS_MAX, Aspect, TurnWork
from tracklog.consumers.turns import Turns
from tracklog.schemas.errors import BlobAltered, BlobMissing, InvalidEvent, UnknownSchema
from tracklog.schemas.events import TaskStarted
from tracklog.schemas.same_work import same_work
from tracklog.schemas.values import Ref

__all__ = ["OUTCOME", "Comparison", "Sides", "TurnPair", "compare"]

TURN: Final = "turn"
"""Differs when one side has no such turn."""
OUTCOME: Final = "outcome"


class Sides(NamedTuple):
    """The same aspect of both, in words."""

    left: str
    right: str


class TurnPair(NamedTuple):
    """One turn of both. `differs` by aspect, in the order in which they come about; `shared`: it is the same events."""

    turn: int
    shared: bool
    differs: Mapping[str, Sides]
    said: Sides

    @property
    def same(self) -> bool:
        return not self.differs


class Comparison(NamedTuple):
    """`shared` is the last event that both have, by lineage. `ends` says how each ended.

    `events`: the first difference event by event, as `same_work` sees it; "" for none, None where it does not apply.
    """

    left: str
    right: str
    shared: Ref | None
    turns: tuple[TurnPair, ...]
    ends: Sides
    ends_differ: bool
    events: str | None

    @property
    def same(self) -> bool:
        return not self.ends_differ and all(pair.same for pair in self.turns)

    @property
    def first(self) -> tuple[int | None, str, Sides] | None:
        """(turn, what, how) of the first difference; the turn is None when only the ends differ."""
        for pair in self.turns:
            for what, sides in pair.differs.items():
                return pair.turn, what, sides
        return (None, OUTCOME, self.ends) if self.ends_differ else None


def compare(left: Turns, right: Turns) -> Comparison:
    """Blocks. Raises BlobError when the blob store cannot be used; a blob that is missing differs from any other."""
    both = TurnWork(left), TurnWork(right)
    shared = _shared(left, right)
    ends = both[0].outcome(), both[1].outcome()
    return Comparison(
        left.trajectory_id,
        right.trajectory_id,
        _ref(left, shared),
        tuple(_pairs(*both, shared)),
        Sides(ends[0].words, ends[1].words),
        ends[0].key != ends[1].key,
        _by_events(left, right),
    )


def _shared(left: Turns, right: Turns) -> int:
    """How many events both begin with: the very same ones."""
    pairs = zip(left.events, right.events, strict=False)
    either = min(len(left.events), len(right.events))
    return next((n for n, (a, b) in enumerate(pairs) if a.hash != b.hash), either)


def _ref(turns: Turns, shared: int) -> Ref | None:
    if not shared:
        return None
    last = turns.events[shared - 1].envelope
    return Ref(trajectory_id=last.trajectory_id, seq=last.seq)


def _pairs(left: TurnWork, right: TurnWork, shared: int) -> Iterator[TurnPair]:
    versions: tuple[object, object] = (None, None)
    for turn in range(max(left.turns.last, right.turns.last) + 1):
        said = Sides(left.words(turn), right.words(turn))
        if _is_shared(left.turns, right.turns, turn, shared):
            yield TurnPair(turn, True, {}, said)
            continue
        there = [turn == 0 or turn in one.turns.contexts for one in (left, right)]
        if not all(there):
            words = ["there is one" if one else "there is none" for one in there]
            yield TurnPair(turn, False, {TURN: Sides(*words)}, said)
            continue
        work = left.of(turn), right.of(turn)
        differs = {name: sides for name in ASPECTS if (sides := _differs(name, left, right, work, turn)) is not None}
        held = tuple(one.get("versions", NOTHING).key for one in work)
        if held == versions:
            differs.pop("versions", None)  # said already, at the turn from which on they hold
        versions = held[0], held[1]
        yield TurnPair(turn, False, differs, said)


def _is_shared(left: Turns, right: Turns, turn: int, shared: int) -> bool:
    """Whether both have the very same context, or start for turn 0."""
    return max(_place(left, turn, shared), _place(right, turn, shared)) < shared


def _place(turns: Turns, turn: int, none: int) -> int:
    if turn > 0:
        return turns.contexts[turn].place if turn in turns.contexts else none
    return next((n for n, event in enumerate(turns.events) if isinstance(event.body, TaskStarted)), none)


def _differs(
    name: str, left: TurnWork, right: TurnWork, work: tuple[Mapping[str, Aspect], Mapping[str, Aspect]], turn: int
) -> Sides | None:
    a, b = (one.get(name, NOTHING) for one in work)
    if a.key == b.key:
        return None
    if name != "context" or NOTHING in (a, b):
        return Sides(a.words, b.words)
    return _contexts(left, right, a, b, turn)


def _contexts(left: TurnWork, right: TurnWork, a: Aspect, b: Aspect, turn: int) -> Sides | None:
    """The first message that differs; the hashes alone may differ by the ids of calls and by the rule."""
    try:
        messages = left.messages(turn), right.messages(turn)
        number = next((n for n, (x, y) in enumerate(zip_longest(*messages)) if x != y), None)
        if number is not None:
            return Sides(left.message_words(turn, number), right.message_words(turn, number))
    except (BlobMissing, BlobAltered, InvalidEvent) as error:
        why = f" ({error.message})"[:WORDS_CHARS_MAX]
        return Sides(a.words + why, b.words + why)
    tools = [one.turns.contexts[turn].tools for one in (left, right)]
    if tools[0] == tools[1]:
        return None
    return Sides(*("no tools" if one is None else f"tools {one.hex()[:16]}" for one in tools))


def _by_events(left: Turns, right: Turns) -> str | None:
    """Not for forks: what they inherit is another trajectory's."""
    if left.inherited or right.inherited:
        return None
    try:
        found = same_work(left.events, right.events)
    except UnknownSchema as error:
        return error.message
    return "" if found is None else one_line(str(found), WORDS_CHARS_MAX)
