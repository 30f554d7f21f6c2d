"""The cursor: from recorded events to answers (DESIGN §7). Pure.

What a program asks for is matched with what is recorded, never by position alone:

    calls (Authorized, Approval..., ToolIntent, ToolResult)   by call id: they may run side by side, in any order; an
                                                 edited call has more than one ruling, taken by occurrence
    steps and readings (Observed)                by kind, name and occurrence
    everything else                              in order: the next one must be of the kind asked for

Each recorded event names the event that its program had seen last when it asked (`causes`). So an answer is
given only when that one was given before it: steps in another order are found, calls side by side are not
mistaken for it. What ran side by side is over before the next event of the third kind.

An answer of None means: nothing is recorded, and rightly so; the program goes on live. Anything that does not
fit raises Diverged.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from typing import Final, Generic, NamedTuple, TypeVar

from tracklog.producers.divergence import Diverged, Divergence
from tracklog.producers.places import Places
from tracklog.producers.spend import NOTHING_SPENT, Recount, Spend
from tracklog.producers.versions import Versions
from tracklog.schemas import events as ev
from tracklog.schemas.approvals import is_escalation
from tracklog.schemas.codec import Event
from tracklog.schemas.spawn import ending_of
from tracklog.schemas.values import Ending, ObservedKind

__all__ = ["Cursor", "Recorded", "came", "describe", "imported", "in_short"]

B = TypeVar("B", bound=ev.EventBody)

ASIDE: Final[frozenset[type]] = frozenset(
    {
        ev.OwnershipClaimed,
        ev.OwnershipReleased,
        ev.Annotated,
        ev.InboxRefused,
        ev.InDoubt,
        ev.Escalated,
        ev.DriftCrossed,
        ev.CheckpointTaken,
        ev.CancelRequested,
    }
)
"""Written about a program's work, not asked for by it. A set, as the next two: asking a tuple of pydantic models by
isinstance takes longer than all else that is done with an event here."""
IMPORTED: Final = ("import:", "ingest:")
"""Sources under which importers and the ingest API count what was recorded elsewhere."""
BY_IMPORTER: Final[frozenset[type]] = frozenset({ev.Observed, ev.TaskEnded})
"""What of an import is not its harness's: what the recording holds beside the messages, and where it stops."""
_NOTHING: Final[Mapping[str, str]] = {}
OF_CALLS: Final[frozenset[type]] = frozenset(
    {ev.Authorized, ev.ApprovalRequested, ev.ApprovalResolved, ev.ToolIntent, ev.ToolResult}
)


class Recorded(NamedTuple, Generic[B]):
    """An accepted event as the cursor knows it, at its place: its seq, or below 0 when it is inherited (`places`).

    `cause` is the place of what its program had seen last.
    """

    seq: int
    turn: int
    cause: int | None
    body: B
    ext: Mapping[str, str] = _NOTHING


Open = Recorded[ev.EventBody]


class Cursor:
    """Gives each recorded event out once. `events` are the accepted ones of one trajectory, in order; what `places`
    says that it inherits comes before them.

    `after`: what is recorded up to there was given out to an earlier run, which had spent `spent` by then, and whose
    memory goes on.
    """

    def __init__(
        self,
        events: Iterable[Event],
        places: Places | None = None,
        *,
        after: int | None = None,
        spent: Spend = NOTHING_SPENT,
    ) -> None:
        own = tuple(events)
        self.places: Final = places if places is not None else Places(own[0].envelope.trajectory_id if own else "")
        self.start: Recorded[ev.TaskStarted] | None = None
        """What the trajectory was started with."""
        self._after = after
        self.end = -1
        """Seq of the last own event that is recorded; what has a higher one is live."""
        self.turn = 0
        """Turn of the last event given out."""
        self.versions: list[tuple[Open, Versions]] = []
        """Those recorded, each with the event that says so."""
        self.recount: Final = Recount(spent)
        self.let_go_on = -1
        """Place of the last claim that took a record of the inbox: somebody said that it may go on."""
        self.mail: deque[Recorded[ev.MessageReceived]] = deque()
        """What came into the inbox and was not given out: the n-th is for the n-th that asks."""
        self.children: dict[str, tuple[Recorded[ev.MessageReceived], Ending]] = {}
        """Outcomes of child runs that were not given out, by their ids."""
        self.woken: dict[str, deque[Recorded[ev.TimerFired]]] = {}
        """Wall-clock timers that went off and were not waited for yet, by name."""
        self.cancelled = False
        """Somebody cancelled it: it ends where it was, and not by its program."""
        self.imported = False
        """Another harness recorded it, and an importer made its events."""
        self._broken: Diverged | None = None
        self._open: dict[int, Open] = {}
        self._seqs: deque[int] = deque()
        self._ordered: deque[Open] = deque()
        self._keyed: dict[tuple[str, ...], Open] = {}
        self._times: Counter[tuple[str, ...]] = Counter()
        inherited = self.places.inherited
        for place, event in enumerate(inherited, -len(inherited)):
            self._keep(event, place)
        for event in own:
            self._keep(event, event.envelope.seq)

    @property
    def done(self) -> bool:
        """True when everything recorded was given out."""
        return not self._open

    @property
    def divergence(self) -> Divergence | None:
        """The one that was found, None while all is as it was."""
        return None if self._broken is None else self._broken.divergence

    @property
    def open_places(self) -> frozenset[int]:
        """Places of the recorded events that are to be asked for and were not given out."""
        return frozenset(self._open)

    @property
    def left(self) -> int:
        """How many recorded events were not given out."""
        return len(self._open)

    def ordered(self, kind: type[B], asked: str, after: int | None) -> Recorded[B] | None:
        """The next event in order. `after` is the seq of the event that the program saw last, None for none."""
        self.check_sound()
        if not self._ordered:
            if self._open:
                raise self.diverged(self._first(), asked)
            return None
        found = self._ordered[0]
        left_out = self._first()
        if left_out.seq < found.seq or not isinstance(found.body, kind):
            raise self.diverged(left_out, asked)
        self._give(found, asked, after)
        self._ordered.popleft()
        return _typed(found, found.body)

    def received(self, asked: str, after: int | None, peer: str | None = None) -> Recorded[ev.MessageReceived] | None:
        """The next message that came into the inbox (from this peer), None when no other is recorded.

        An imported run has each message where it was heard: there it is the next event in order.
        """
        self.check_sound()
        found = self.heard(peer)
        if found is not None:
            return found
        if self.imported:
            return self.ordered(ev.MessageReceived, asked, after)
        if self._open:
            raise self.diverged(self._first(), asked)
        return None

    def next_of_call(self, kind: type[ev.EventBody], call_id: str, times: int) -> Open | None:
        """What `of_call` is about to give, or find in its place."""
        return self._keyed.get((kind.__name__, call_id, str(times)), self.next_open())

    def next_observed(self, kind: ObservedKind, name: str, occurrence: int) -> Open | None:
        """The same of `observed`."""
        return self._keyed.get((ev.Observed.__name__, kind.value, name, str(occurrence)), self.next_open())

    def next_heard(self, peer: str | None) -> Recorded[ev.MessageReceived] | Open | None:
        """The same of `received`."""
        return next((one for one in self.mail if peer is None or one.body.peer == peer), self.next_open())

    def heard(self, peer: str | None) -> Recorded[ev.MessageReceived] | None:
        """Takes the first message that came into the inbox (from this peer) out of it."""
        found = next((one for one in self.mail if peer is None or one.body.peer == peer), None)
        if found is not None:
            self.mail.remove(found)
        return found

    def of_call(self, kind: type[B], call_id: str, asked: str, after: int | None, times: int = 0) -> Recorded[B] | None:
        """What is recorded of a call; of one that was edited, the rulings and decisions by how many came before."""
        return self._by_key(kind, (kind.__name__, call_id, str(times)), asked, after)

    def observed(
        self, kind: ObservedKind, name: str, occurrence: int, asked: str, after: int | None
    ) -> Recorded[ev.Observed] | None:
        """What a step or a reading gave."""
        return self._by_key(ev.Observed, (ev.Observed.__name__, kind.value, name, str(occurrence)), asked, after)

    def check_all_given(self, asked: str) -> None:
        """Raises Diverged when something recorded was never asked for."""
        self.check_sound()
        if self._open:
            raise self.diverged(self._first(), asked)

    def diverged(self, found: Open, asked: str) -> Diverged:
        """The error for a recorded event that is not what was asked for. Nothing more is given out after it."""
        return self.broken(Divergence(found.turn, found.seq, describe(found.body), asked))

    def broken(self, divergence: Divergence) -> Diverged:
        """The same in other words; the first one stands, also when the program goes on regardless."""
        if self._broken is None:
            self._broken = Diverged(self._named(divergence))
        return self._broken

    def check_sound(self) -> None:
        """Raises the divergence that was found before."""
        if self._broken is not None:
            raise self._broken

    @property
    def inheriting(self) -> bool:
        """True while something inherited was not given out."""
        return bool(self._open) and self._first().seq < 0

    def begin(self, place: int, body: ev.TaskStarted) -> None:
        """Takes in the start of a fork, which was written after this record was read."""
        self.versions.append((Recorded(place, 0, None, body), Versions.started(body)))

    def next_open(self) -> Open | None:
        """The first recorded event that was not given out, None past the end."""
        return self._first() if self._open else None

    def _by_key(self, kind: type[B], key: tuple[str, ...], asked: str, after: int | None) -> Recorded[B] | None:
        self.check_sound()
        found = self._keyed.get(key)
        if found is None:
            if self._ordered:  # what ran side by side was over before this, so it would be recorded
                raise self.diverged(self._first(), asked)
            return None
        if not isinstance(found.body, kind):
            raise self.diverged(found, asked)
        if self._ordered and self._ordered[0].seq < found.seq:
            raise self.diverged(self._first(), asked)
        self._give(found, asked, after)
        del self._keyed[key]
        return _typed(found, found.body)

    def _give(self, found: Open, asked: str, after: int | None) -> None:
        if found.cause in self._open:
            raise self.diverged(self._open[found.cause], asked)
        if after is not None and after > self.end:
            raise self.diverged(found, f"{asked}, after something that is not recorded")
        del self._open[found.seq]
        self.turn = max(self.turn, found.turn)

    def _named(self, divergence: Divergence) -> Divergence:
        """With the name of the origin, when it is about an inherited event."""
        if divergence.seq is None or divergence.seq >= 0:
            return divergence
        ref = self.places.ref(divergence.seq)
        return divergence._replace(seq=ref.seq, recorded=f"{divergence.recorded} (in {ref.trajectory_id})")

    def _keep(self, event: Event, place: int) -> None:
        envelope, body = event.envelope, event.body
        self.end = max(self.end, place)
        self.recount.tenant = envelope.tenant
        passed = self._after is not None and place <= self._after
        if not passed:
            self.recount.keep(event)
        if type(body) is ev.OwnershipClaimed and envelope.inbox_id is not None:
            self.let_go_on = place
        if body is None:
            return
        kept = Recorded(place, envelope.turn, self.places.last(envelope.causes), body, envelope.ext)
        aside = type(body) in ASIDE or (type(body) is ev.ApprovalRequested and is_escalation(envelope.ext))
        aside = aside or (type(body) is ev.ToolIntent and came(event))  # a person had the call done again
        if type(body) is ev.TimerFired and came(event):
            if not passed:
                self.woken.setdefault(body.timer_id, deque()).append(_typed(kept, body))
            aside = True
        self.cancelled = self.cancelled or type(body) is ev.CancelRequested
        if type(body) is ev.MessageReceived and came(event):
            ending, found = ending_of(event), Recorded(place, envelope.turn, None, body)
            if ending is None:
                self.mail.append(found)
            else:
                self.children[body.peer] = found, ending
            aside = True
        if type(body) is ev.TaskEnded and self.cancelled:
            aside = True  # whoever obeyed the cancel wrote it, not the program
        if imported(event):
            self.imported = True
            aside = aside or type(body) in BY_IMPORTER
        if type(body) is ev.TaskStarted:
            aside = bool(self.versions)  # of a fork: its program asked for the start of its origin
            self.versions.append((kept, Versions.started(body)))
            self.start = _typed(kept, body)
        elif type(body) is ev.DriftCrossed and self.versions:
            self.versions.append((kept, self.versions[-1][1].crossed(body, envelope.ext)))
        if aside or passed:
            return
        self._open[kept.seq] = kept
        self._seqs.append(kept.seq)
        key = _key(body)
        if key is None:
            self._ordered.append(kept)
            return
        if type(body) in OF_CALLS:
            key, times = (*key, str(self._times[key])), key
            self._times[times] += 1
        self._keyed[key] = kept

    def _first(self) -> Open:
        while self._seqs[0] not in self._open:
            self._seqs.popleft()
        return self._open[self._seqs[0]]


def came(event: Event) -> bool:
    """True for what was taken from the inbox; what was recorded elsewhere counts its own steps by inbox ids."""
    return event.envelope.inbox_id is not None and not imported(event)


def imported(event: Event) -> bool:
    """True for an event that was recorded elsewhere."""
    taken = event.envelope.inbox_id
    return taken is not None and taken.source.startswith(IMPORTED)


def _typed(found: Open, body: B) -> Recorded[B]:
    return Recorded(found.seq, found.turn, found.cause, body, found.ext)


def _key(body: ev.EventBody) -> tuple[str, ...] | None:
    if type(body) is ev.Observed:
        return (type(body).__name__, body.kind.value, body.name, str(body.occurrence))
    if type(body) in OF_CALLS:
        return (type(body).__name__, body.call_id)  # type: ignore[attr-defined]
    return None


def describe(body: ev.EventBody) -> str:
    """An event in words, for reports."""
    name = type(body).__name__
    if isinstance(body, ev.Observed):
        return f"{body.kind.value} {body.name!r}, occurrence {body.occurrence}"
    if isinstance(body, ev.Authorized):
        return f"{body.ruling.value} for call {body.call_id!r}"
    if isinstance(body, ev.ApprovalRequested):
        return f"a request to approve call {body.call_id!r}"
    if isinstance(body, ev.ApprovalResolved):
        return f"the decision about call {body.call_id!r}: {body.choice.value}"
    if isinstance(body, ev.ToolIntent):
        return f"call {body.call_id!r} of {body.tool} with {in_short(body.arguments.text)}"
    if isinstance(body, ev.ToolResult):
        return f"the result of call {body.call_id!r}: {body.status.value} {in_short(body.output.text)}"
    if isinstance(body, ev.ContextBuilt):
        return f"a context of {body.messages} messages with hash {body.context_hash.hex()[:16]}"
    if isinstance(body, ev.MessageSent):
        return f"a message to {body.peer}: {in_short(body.message.text)}"
    if isinstance(body, ev.MessageReceived):
        return f"a message from {body.peer}: {in_short(body.message.text)}"
    if isinstance(body, ev.Compacted):
        return f"a summary of turns {body.first_turn} to {body.last_turn}"
    if isinstance(body, ev.ModelReplied):
        return f"a model call, answered with {in_short(body.reply.text)}"
    return name


def in_short(text: str) -> str:
    """The beginning of a text, for reports."""
    return repr(text if len(text) <= 200 else f"{text[:200]}...")
