"""Making a program durable: open a session, run, leave; after a crash do the same again (DESIGN §7).

    async with opened(producer, "trip-1", log=log, setup=Setup(agent="traveller", task="book a trip", ...)) as session:
        ...

Opening claims the trajectory, which fences whoever had it; reads its record; and settles every call that may have
happened and has no outcome. Leaving well releases it. Leaving with an error leaves it resumable.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Final, NamedTuple

from tracklog.infra.log.port import Log
from tracklog.producers.approvals import expire_requests
from tracklog.producers.calls import Calls, result_body, settling_of
from tracklog.producers.cursor import Cursor
from tracklog.producers.divergence import Diverged
from tracklog.producers.fork_start import Fork
from tracklog.producers.history import Accepted, started_of
from tracklog.producers.in_force import check_drift
from tracklog.producers.leash import Leash
from tracklog.producers.lineage import Lineage, read_lineage
from tracklog.producers.mailbox import LogMailbox, Mailbox
from tracklog.producers.parking import parked_of
from tracklog.producers.pen import EndedPen, Pen, WriterPen
from tracklog.producers.places import Places
from tracklog.producers.producer import EventProducer
from tracklog.producers.record import Record
from tracklog.producers.reopening import Reopened
from tracklog.producers.sandbox import Sandbox
from tracklog.producers.session import Session
from tracklog.producers.settle import Standing
from tracklog.producers.setup import Setup
from tracklog.producers.taking import Taking
from tracklog.producers.versions import Versions
from tracklog.producers.writer import TrajectoryWriter
from tracklog.schemas import events as ev
from tracklog.schemas.codec import Event
from tracklog.schemas.errors import (
    Cancelled,
    Fenced,
    InputError,
    InvalidEvent,
    SessionError,
    TracklogError,
    UnknownSchema,
    WriterError,
)
from tracklog.schemas.lifecycle import CallStatus, Parked
from tracklog.schemas.limits import TEXT_FIELD_CHARS_MAX
from tracklog.schemas.state import Call, State
from tracklog.schemas.topics import Topics
from tracklog.schemas.values import Driver, Ending, InboxId, Place

__all__ = ["opened"]

OWNER: Final = "library"
Takes = tuple[InboxId, int] | tuple[None, None]


@asynccontextmanager
async def opened(
    producer: EventProducer,
    trajectory_id: str,
    *,
    log: Log,
    setup: Setup,
    topics: Topics | None = None,
    owner: str = OWNER,
    tenant: str | None = None,
    from_checkpoint: bool = False,
    fork: Fork | None = None,
    takes: tuple[InboxId, int] | None = None,
    leash: Leash | None = None,
    mailbox: Mailbox | None = None,
) -> AsyncIterator[Session]:
    """A session on the trajectory, new or as its record says. `log` and `topics` are those of the producer.

    `mailbox` has what others say to the trajectory; without it the inbox is read from the log.
    `fork` says how a new trajectory begins when it is a fork, see `forked`; one that is recorded says it itself.
    `takes` is an inbox record, with its offset, that opening it takes; `leash` stops the program at its next step.
    Of a trajectory that has ended the record answers, and nothing is written. Raises ClaimLost, TrajectoryFaulty,
    InvalidEvent for a trajectory of another driver, PersonNeeded or StillInDoubt while a call cannot be settled,
    and Diverged when the task or the agent is another one.

    `from_checkpoint` is for programs that go on from `session.memory` alone, as `run_turns` does. The files of
    `setup.workspace` are brought back first; raises WorkspaceError, BlobMissing, BlobAltered.
    """
    names = topics if topics is not None else Topics()
    topic = names.events
    writer, ended = await _take_up(producer, trajectory_id, setup, owner, tenant, takes or (None, None))
    if writer is None:
        async with _over(producer, trajectory_id, ended, log, topic, setup, fork) as session:
            yield session
        return
    pen = WriterPen(writer, leash)
    try:
        taking = await _taking(pen, mailbox, setup, log, names.inbox)
        history = await _record_up_to(producer, await pen.standing())
        begun = await _begun(log, topic, trajectory_id, history, fork)
        _check_drift(setup, history, writer.state)
        back = await _reopened(setup, trajectory_id, pen, history, begun, from_checkpoint)
        if writer.state.open_intents:
            await _settle_all(setup, trajectory_id, pen, history, writer.state)
            history = await _record_up_to(producer, await writer.confirm())
        producer.close_history(trajectory_id)
        session, record = _session(setup, trajectory_id, history, pen, begun, back)
        record.taking = taking
        taking.messages.clear()  # those are in the record that was read after them
        await session.start(back.recall)
        async with _running(session, record):
            yield session
    except Cancelled as error:
        await _obey(pen, error)
        raise
    except Exception as error:
        await _leave(pen, f"left with {type(error).__name__}: {error}"[:TEXT_FIELD_CHARS_MAX], error)
        raise
    finally:
        producer.close_history(trajectory_id)
    await pen.release()


async def _taking(pen: WriterPen, mailbox: Mailbox | None, setup: Setup, log: Log, topic: str) -> Taking:
    """Takes what has come to a trajectory that was begun; what came before its start is taken after it."""
    own = mailbox if mailbox is not None else LogMailbox(log, topic, pen.writer.trajectory_id, clock=setup.clock)
    taking = Taking(pen, own)
    if pen.writer.state.task is not None:
        await taking.look()
        await expire_requests(pen, await pen.standing(), setup.clock)
    return taking


async def _take_up(
    producer: EventProducer, trajectory_id: str, setup: Setup, owner: str, tenant: str | None, takes: Takes
) -> tuple[TrajectoryWriter | None, list[Accepted]]:
    """The claim, and the record before it; no claim of what has ended."""
    try:
        state, history = await producer.history(trajectory_id)
        _check_driver(state, setup.driver)
        if not state.ended:
            claim = partial(producer.claim, trajectory_id, owner=owner, driver=setup.driver, tenant=tenant)
            return await claim(inbox_id=takes[0], inbox_position=takes[1]), history
    except BaseException:
        producer.close_history(trajectory_id)
        raise
    producer.close_history(trajectory_id)
    return None, history


@asynccontextmanager
async def _over(
    producer: EventProducer,
    trajectory_id: str,
    ended: Sequence[Accepted],
    log: Log,
    topic: str,
    setup: Setup,
    fork: Fork | None,
) -> AsyncIterator[Session]:
    """A session of a trajectory that has ended."""
    begun = await _begun(log, topic, trajectory_id, ended, fork)
    session, _ = _session(setup, trajectory_id, ended, EndedPen(trajectory_id), begun)
    await session.start()
    try:
        yield session
    finally:
        session.close()
        producer.forget(trajectory_id)


def _check_driver(state: State, driver: Driver) -> None:
    if state.task is not None and state.task.driver is not driver:
        raise InvalidEvent(
            f"trajectory {state.trajectory_id!r} is driven by {state.task.driver.value!r}, not by {driver.value!r}",
            hint="only what started a trajectory goes on with it",
        )


async def _record_up_to(producer: EventProducer, state: State) -> list[Accepted]:
    """The accepted events up to this state's head, and no later owner's."""
    _, accepted = await producer.history(state.trajectory_id)
    return [one for one in accepted if one[0].envelope.seq <= state.head.seq]


class _Begun(NamedTuple):
    """How the trajectory began, when it is a fork, and what it inherits."""

    fork: Fork | None
    lineage: Lineage


async def _begun(log: Log, topic: str, trajectory_id: str, history: Sequence[Accepted], asked: Fork | None) -> _Begun:
    """As recorded, or as asked for. Raises InputError when these are two things."""
    events = [event for event, _ in history]
    started = started_of(events) is not None
    fork = Fork.recorded(events) if started else asked
    if asked is not None:
        differs = "that it is a fork" if fork is None else asked.differs(fork)
        if differs:
            raise InputError(
                f"trajectory {trajectory_id!r} is there already and began otherwise: {differs}",
                hint="give the fork an id of its own",
            )
    if fork is None:
        return _Begun(None, Lineage(()))
    return _Begun(fork, await asyncio.to_thread(read_lineage, log, topic, fork.origin))


async def _reopened(
    setup: Setup, trajectory_id: str, pen: Pen, history: Sequence[Accepted], begun: _Begun, from_checkpoint: bool
) -> Reopened:
    settling = settling_of(setup, trajectory_id, pen)
    remembers = from_checkpoint and begun.fork is None  # what a fork inherits is gone through as a whole
    recorded = [*begun.lineage.inherited, *_events(history)]
    return await Reopened.of(setup, trajectory_id, recorded, settling, remembers=remembers)


def _session(
    setup: Setup,
    trajectory_id: str,
    history: Sequence[Accepted],
    pen: Pen,
    begun: _Begun,
    back: Reopened | None = None,
) -> tuple[Session, Record]:
    unknown = [event for event, _ in history if event.body is None]
    if unknown:
        raise UnknownSchema(
            f"event {unknown[0].envelope.seq} of {trajectory_id!r} is a {unknown[0].name} of a version not known here",
            hint="go on with a Tracklog that knows it",
        )
    events = _events(history)
    recall = None if back is None else back.recall
    places = Places(trajectory_id, begun.lineage.inherited)
    cursor = Cursor(events, places, after=None if recall is None else recall.until)
    record = Record(trajectory_id, cursor, pen, setup.store, body_inline_bytes_max=setup.body_inline_bytes_max)
    sandbox = Sandbox(begun.fork.allow, begun.lineage) if begun.fork is not None else None
    points = None
    if isinstance(pen, WriterPen):
        pen.places = places
    if back is not None and isinstance(pen, WriterPen):
        points = back.checkpoints(setup, record, pen, events)
    calls = Calls(setup, record, settling_of(setup, trajectory_id, pen), sandbox, points)
    session = Session(setup, record, calls, fork=begun.fork, checkpoints=points)
    session.notes = () if back is None else tuple(back.notes)
    return session, record


def _events(history: Sequence[Accepted]) -> list[Event]:
    return [event for event, _ in history]


async def _settle_all(
    setup: Setup, trajectory_id: str, pen: WriterPen, history: Sequence[Accepted], state: State
) -> None:
    """Settles every open call, in the order of the intents. One that cannot be settled does not keep the others."""
    settling = settling_of(setup, trajectory_id, pen)
    record = Record(trajectory_id, Cursor(()), pen, setup.store, body_inline_bytes_max=setup.body_inline_bytes_max)
    held: list[SessionError] = []
    for call_id, call in sorted(state.open_intents.items(), key=lambda one: one[1].seq):
        standing = await _standing(record, call_id, call, history)
        if standing is None:
            continue
        try:
            outcome = await settling.settle(standing)
        except SessionError as error:
            held.append(error)
            continue
        body = await result_body(record, call_id, outcome, standing.attempts)
        await pen.append(body, turn=call.turn, cause=call.seq)
    if held:
        raise held[0]


def _check_drift(setup: Setup, history: Sequence[Accepted], state: State) -> None:
    """Before anything is done by other versions than those that are recorded."""
    recorded = Versions.recorded(event for event, _ in history)
    if recorded is None:
        return
    open_at = {call.seq for call in state.open_intents.values() if call.place is Place.INLINE}
    intents = (event.body for event, _ in history if event.envelope.seq in open_at)
    check_drift(state.trajectory_id, setup, recorded, [body for body in intents if isinstance(body, ev.ToolIntent)])


async def _standing(record: Record, call_id: str, call: Call, history: Sequence[Accepted]) -> Standing | None:
    """The open call as its intent says; None for one that is nobody's to run."""
    if call.place is not Place.INLINE:
        return None
    event, position = next(one for one in history if one[0].envelope.seq == call.seq)
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


@asynccontextmanager
async def _running(session: Session, record: Record) -> AsyncIterator[None]:
    """Around the program. One that leaves well before its record does has left something out."""
    try:
        yield
        record.cursor.check_all_given("the end of the program")
        await session.checkpoint()
    except Exception as error:
        await _keep(session, error)
        raise
    finally:
        session.close()


async def _keep(session: Session, error: Exception) -> None:
    """A checkpoint before the trajectory is let go of; the error is what is told."""
    if isinstance(error, Diverged | WriterError | Cancelled):
        return
    try:
        await session.checkpoint()
    except TracklogError as also:
        error.add_note(f"no checkpoint could be taken: {also}")


async def _obey(pen: WriterPen, cancelled: Cancelled) -> None:
    """Ends a trajectory that was cancelled, unless a call of it may have happened and has no result."""
    state = await pen.standing()
    if not state.ended and not state.open_intents:
        reason = cancelled.message[:TEXT_FIELD_CHARS_MAX]
        await pen.append(ev.TaskEnded(ending=Ending.CANCELLED, reason=reason), turn=state.turn, cause=None)
    await pen.release("cancelled", parked=Parked.DOUBT if state.open_intents else None)


async def _leave(pen: WriterPen, reason: str, error: Exception) -> None:
    """Releases, when the trajectory is still this process's to release; the error is what is told."""
    if isinstance(error, Fenced):
        return
    try:
        await pen.release(reason, parked=parked_of(error))
    except TracklogError as also:
        error.add_note(f"the trajectory could not be released: {also}")
