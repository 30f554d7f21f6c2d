"""What may be trimmed, as a function of what was read. Pure (DESIGN §4, §8 rule 4).

    events      below what is exported, the first event of every trajectory that
                is not over, and the first event of every origin of a fork that is not over
    inbox       below the oldest record that was not taken, and the Submit of any run that is not over
    attempts    below the first entry of any open intent
    all         below what is not older than the time to keep

A cut never lies between two records that each say they are the first event of one trajectory: whoever reads from the
cut on would take the second for the first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from tracklog.consumers.retention.survey import Lying, Survey
from tracklog.infra.log.port import Record
from tracklog.schemas.codec import decode_inbox, decode_ledger
from tracklog.schemas.errors import ForeignRecord
from tracklog.schemas.values import Driver

__all__ = ["Cut", "attempts_cut", "events_cuts", "inbox_cut", "pinned_origins"]


class Cut(NamedTuple):
    """A partition of a topic is kept from `before` on; `why` names what holds it there."""

    topic: str
    partition: int
    first: int
    before: int
    end: int
    why: str

    @property
    def records(self) -> int:
        """Offsets that go."""
        return max(0, self.before - self.first)

    @property
    def kept(self) -> int:
        """Offsets that the log has of it now."""
        return max(0, self.end - self.first)


def pinned_origins(surveys: Iterable[Survey]) -> frozenset[str]:
    """All trajectories from which one that is not over was forked, and theirs."""
    known = {name: one for each in surveys for name, one in each.trajectories.items()}
    pinned: set[str] = set()
    todo = [one for one in known.values() if not one.over]
    while todo:
        task = todo.pop().state.task
        origin = None if task is None or task.origin is None else task.origin.trajectory_id
        if origin is not None and origin not in pinned:
            pinned.add(origin)
            if origin in known:
                todo.append(known[origin])
    return frozenset(pinned)


def events_cuts(
    topic: str, surveys: Iterable[Survey], exported: Mapping[int, int], old: Mapping[int, int]
) -> list[Cut]:
    """Of each partition, given its next offset in the table and the first offset that is not old enough."""
    surveys = list(surveys)
    pinned = pinned_origins(surveys)
    return [_events_cut(topic, one, exported[one.partition], old[one.partition], pinned) for one in surveys]


def _events_cut(topic: str, survey: Survey, exported: int, old: int, pinned: frozenset[str]) -> Cut:
    bounds = survey.events
    before, why = _least((bounds.end, "nothing"), (old, "its age"), (exported, "what is exported"))
    for name, one in survey.trajectories.items():
        if one.over and name not in pinned:
            continue
        if one.first < bounds.first and one.state.ended:
            continue  # its beginning went when it was over: it is read from the cold tier, and holds up no more
        if one.first < before:
            before, why = one.first, _why(name, one, pinned)
    moved = True
    while moved:
        moved = False
        for name, one in survey.trajectories.items():
            if one.first < before <= one.beginning:
                before, why, moved = one.first, f"{name}: two records say they are its first", True
    return Cut(topic, survey.partition, bounds.first, max(before, bounds.first), bounds.end, why)


def _least(*bounds: tuple[int, str]) -> tuple[int, str]:
    """Of several that are the least, the one that is named first: what reaches the end is held by nothing."""
    return min(bounds, key=lambda one: one[0])


def _why(name: str, one: Lying, pinned: frozenset[str]) -> str:
    if name in pinned and one.over:
        return f"{name}: a fork of it is not over"
    return f"{name}: {one.state.summary}"


def inbox_cut(topic: str, survey: Survey, records: Iterable[Record], old: int) -> Cut:
    """`records` are those of the inbox partition, from its first on."""
    bounds = survey.inbox
    before, why = _least((bounds.end, "nothing"), (old, "its age"))
    for record in records:
        if record.offset >= before:
            break
        held = _held(survey, record)
        if held:
            before, why = record.offset, held
            break
    return Cut(topic, survey.partition, bounds.first, max(before, bounds.first), bounds.end, why)


def _held(survey: Survey, record: Record) -> str:
    """Why a record of the inbox is still needed; empty when it is not."""
    try:
        read = decode_inbox(record.key, record.value, record.headers)
    except ForeignRecord:
        return ""  # nobody takes it; it is in the quarantine
    envelope = read.envelope
    one = survey.trajectories.get(envelope.trajectory_id)
    if one is None:
        return f"{envelope.trajectory_id}: nobody has begun with it"
    state = one.state
    if read.name == "Submit" and not one.over:
        return f"{envelope.trajectory_id}: its task, and it is {state.summary}"
    if envelope.source_seq <= state.inbox.get(envelope.source, -1):
        return ""
    if state.ended and (state.task is None or state.task.driver is not Driver.WORKER):
        return ""  # whoever ran it is gone
    return f"{envelope.trajectory_id}: a {read.name} that was not taken"


def attempts_cut(topic: str, survey: Survey, records: Iterable[Record], old: int) -> Cut:
    """`records` are those of the ledger partition, from its first on."""
    bounds = survey.attempts
    before, why = _least((bounds.end, "nothing"), (old, "its age"))
    opened = {call.hash: name for name, one in survey.trajectories.items() for call in one.state.open_intents.values()}
    for record in records:
        if record.offset >= before:
            break
        try:
            intent = decode_ledger(record.key, record.value, record.headers).envelope.intent_hash
        except ForeignRecord:
            continue
        if intent in opened:
            before, why = record.offset, f"{opened[intent]}: a call is open"
            break
    return Cut(topic, survey.partition, bounds.first, max(before, bounds.first), bounds.end, why)
