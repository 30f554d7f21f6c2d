"""What a session is opened with, from the record of its trajectory (see `opening`)."""

from __future__ import annotations

import asyncio
from collections.abc import Container
from typing import NamedTuple

from tracklog.infra.log.port import Log
from tracklog.producers.calls import Calls, result_body, settling_of
from tracklog.producers.cursor import Cursor
from tracklog.producers.fork_start import Fork
from tracklog.producers.going_back import read_discarded
from tracklog.producers.history import History, started_of
from tracklog.producers.in_force import check_drift
from tracklog.producers.lineage import Lineage, read_lineage
from tracklog.producers.pen import Pen, WriterPen
from tracklog.producers.places import Places
from tracklog.producers.producer import EventProducer
from tracklog.producers.record import Record
from tracklog.producers.reopening import Reopened
from tracklog.producers.sandbox import sandbox_of
from tracklog.producers.session import Session
from tracklog.producers.settle import Standing
from tracklog.producers.setup import Setup
from tracklog.producers.spend import NOTHING_SPENT
from tracklog.producers.taking import Taking
from tracklog.producers.versions import Versions
from tracklog.schemas import events as ev
from tracklog.schemas.codec import Event
from tracklog.schemas.errors import InputError, SessionError, UnknownSchema
from tracklog.schemas.lifecycle import CallStatus
from tracklog.schemas.state import Call, State
from tracklog.schemas.values import Place

__all__ = ["Begun", "begin_as", "check_known", "check_recorded_drift", "reopened", "session_of", "settle_all"]


class Begun(NamedTuple):
    """How the trajectory began, when it is a fork, and what it inherits."""

    fork: Fork | None
    lineage: Lineage

    async def ruled(self, setup: Setup) -> Setup:
        """The setup with the policy file that a fork was given."""
        return setup if self.fork is None else await asyncio.to_thread(self.fork.ruled, setup)


async def begin_as(log: Log, topic: str, trajectory_id: str, history: History, asked: Fork | None) -> Begun:
    """As recorded, or as asked for. Raises InputError when these are two things."""
    events = history.events
    fork = Fork.recorded(events) if started_of(events) is not None else asked
    if asked is not None:
        differs = "that it is a fork" if fork is None else asked.differs(fork)
        if differs:
            raise InputError(
                f"trajectory {trajectory_id!r} is there already and began otherwise: {differs}",
                hint="give the fork an id of its own",
            )
    if fork is None:
        return Begun(None, Lineage(()))
    lineage = await asyncio.to_thread(read_lineage, log, topic, fork.origin)
    if fork.takes_over:
        lineage = lineage._replace(beyond=await read_discarded(log, topic, fork, lineage.inherited))
    return Begun(fork, lineage)


async def reopened(
    setup: Setup, producer: EventProducer, pen: WriterPen, history: History, begun: Begun, from_checkpoint: bool
) -> Reopened:
    """Files and memory as they are to be. Raises as `Reopened.of`."""
    trajectory_id = pen.writer.trajectory_id
    inherited = begun.lineage.inherited
    last = history.events[-1].envelope.seq

    async def whole() -> list[Event]:
        events = (await producer.whole_history(trajectory_id)).events
        return [*inherited, *(event for event in events if event.envelope.seq <= last)]

    return await Reopened.of(
        setup,
        trajectory_id,
        [*inherited, *history.events],
        settling_of(setup, trajectory_id, pen),
        remembers=from_checkpoint and begun.fork is None,  # what a fork inherits is gone through as a whole
        shortcut=None if history.recall is None else (history.recall, whole),
    )


def check_known(trajectory_id: str, history: History, state: State) -> None:
    """Raises UnknownSchema when an event is of a type or version not known here: what looks open may be over, so
    nothing is settled, taken or done (docs/runbooks/upgrade.md)."""
    unknown = next((event for event in history.events if event.body is None), None)
    if unknown is None and not state.unknown:
        return
    what = (
        f"{state.unknown} events of {trajectory_id!r} are"
        if unknown is None
        else f"event {unknown.envelope.seq} of {trajectory_id!r} is a {unknown.name}"
    )
    raise UnknownSchema(f"{what} of a version not known here", hint="go on with a Tracklog that knows it")


def session_of(
    setup: Setup,
    trajectory_id: str,
    history: History,
    pen: Pen,
    begun: Begun,
    back: Reopened | None = None,
    taking: Taking | None = None,
) -> tuple[Session, Record]:
    events = history.events
    check_known(trajectory_id, history, history.state)
    recall = None if back is None else back.recall
    places = Places(trajectory_id, begun.lineage.inherited)
    after, spent = (None, NOTHING_SPENT) if recall is None else (recall.until, recall.spent)
    cursor = Cursor(events, places, after=after, spent=spent)
    record = Record(
        trajectory_id,
        cursor,
        pen,
        setup.store,
        body_inline_bytes_max=setup.body_inline_bytes_max,
        redaction=setup.redaction,
    )
    if taking is not None:
        record.taking = taking
        taking.given_out()  # the history was read after it
    sandbox = sandbox_of(begun.fork, begun.lineage) if begun.fork is not None else None
    points = None
    if isinstance(pen, WriterPen):
        pen.places = places
    if back is not None and isinstance(pen, WriterPen):
        points = back.checkpoints(setup, record, pen, events)
    calls = Calls(setup, record, settling_of(setup, trajectory_id, pen), sandbox, points)
    calls.recall_open(events)
    session = Session(setup, record, calls, fork=begun.fork, checkpoints=points)
    if isinstance(pen, WriterPen):
        session.children.recall_open(pen.writer.state.children)
    session.notes = () if back is None else tuple(back.notes)
    return session, record


async def settle_all(
    setup: Setup, trajectory_id: str, pen: WriterPen, history: History, state: State, retried: Container[int] = ()
) -> None:
    """Settles every open call, in the order of the intents. One that cannot be settled does not keep the others.

    `retried`: seqs of intents that this owner itself has written, for a person who wants the call done again.
    """
    settling = settling_of(setup, trajectory_id, pen)
    record = Record(
        trajectory_id,
        Cursor(()),
        pen,
        setup.store,
        body_inline_bytes_max=setup.body_inline_bytes_max,
        redaction=setup.redaction,
    )
    held: list[SessionError] = []
    for call_id, call in sorted(state.open_intents.items(), key=lambda one: one[1].seq):
        standing = await _standing(record, call_id, call, history)
        if standing is None:
            continue
        try:
            again = standing.seq in retried
            outcome = await (settling.retry(standing) if again else settling.settle(standing))
        except SessionError as error:
            held.append(error)
            continue
        body = await result_body(record, call_id, outcome, standing.attempts)
        await pen.append(body, turn=call.turn, cause=call.seq)
    if held:
        raise held[0]


def check_recorded_drift(setup: Setup, history: History, state: State) -> None:
    """Before anything is done by other versions than those that are recorded."""
    recorded = Versions.recorded(history.events)
    if recorded is None:
        return
    open_at = {call.seq for call in state.open_intents.values() if call.place is Place.INLINE}
    intents = (event.body for event in history.events if event.envelope.seq in open_at)
    check_drift(state.trajectory_id, setup, recorded, [body for body in intents if isinstance(body, ev.ToolIntent)])


async def _standing(record: Record, call_id: str, call: Call, history: History) -> Standing | None:
    """The open call as its intent says; None for one that is nobody's to run."""
    if call.place is not Place.INLINE:
        return None
    event, position = next(one for one in history.accepted if one[0].envelope.seq == call.seq)
    intent = event.body
    assert isinstance(intent, ev.ToolIntent)
    return Standing(
        intent,
        await record.whole(intent.arguments),
        call.seq,
        call.turn,
        appended_us=position.timestamp_ms * 1000,
        in_doubt=call.status is not CallStatus.INTENDED,
        asked=call.status is CallStatus.ESCALATED,
        attempts=1,
    )
