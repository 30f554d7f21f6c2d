"""Making a program durable: open a session, run, leave; after a crash do the same again (DESIGN §7).

    async with opened(producer, "trip-1", log=log, setup=Setup(agent="traveller", task="book a trip", ...)) as session:
        ...

Opening claims the trajectory, which fences whoever had it; reads its record; and settles every call that may have
happened and has no outcome. Leaving well releases it. Leaving with an error leaves it resumable.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

from tracklog.infra.log.port import Log
from tracklog.producers.approvals import expire_requests
from tracklog.producers.calls import settling_of
from tracklog.producers.cancelling import check_cancelled, obey
from tracklog.producers.divergence import Diverged
from tracklog.producers.fork_start import Fork
from tracklog.producers.history import History
from tracklog.producers.leash import Leash
from tracklog.producers.mailbox import LogMailbox, Mailbox
from tracklog.producers.parking import parked_of
from tracklog.producers.pen import EndedPen, WriterPen
from tracklog.producers.producer import EventProducer
from tracklog.producers.record import Record
from tracklog.producers.resumption import begin_as, check_known, check_recorded_drift, reopened, session_of, settle_all
from tracklog.producers.retrying import Retrying
from tracklog.producers.session import Session
from tracklog.producers.setup import Setup
from tracklog.producers.taking import Taking
from tracklog.producers.tool_run import unfit
from tracklog.producers.writer import Takes, TrajectoryWriter
from tracklog.schemas.errors import (
    Cancelled,
    Fenced,
    InvalidEvent,
    PersonNeeded,
    SessionWaits,
    TracklogError,
    WriterError,
)
from tracklog.schemas.lifecycle import Parked
from tracklog.schemas.limits import TEXT_FIELD_CHARS_MAX
from tracklog.schemas.state import State
from tracklog.schemas.topics import Topics
from tracklog.schemas.values import Driver

__all__ = ["opened"]

OWNER: Final = "library"


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
    takes: Takes | None = None,
    leash: Leash | None = None,
    mailbox: Mailbox | None = None,
) -> AsyncIterator[Session]:
    """A session on the trajectory, new or as its record says. `log` and `topics` are those of the producer.

    `mailbox` has what others say to the trajectory; without it the inbox is read from the log.
    `fork` says how a new trajectory begins when it is a fork, see `forked`; one that is recorded says it itself.
    `takes` is an inbox record that opening it takes; `leash` stops the program at its next step.
    Of a trajectory that has ended the record answers, and nothing is written. Raises ClaimLost, TrajectoryFaulty,
    InvalidEvent for a trajectory of another driver, PersonNeeded or StillInDoubt while a call cannot be settled,
    and Diverged when the task or the agent is another one.

    `from_checkpoint` is for programs that go on from `session.memory` alone, as `run_turns` does. The files of
    `setup.workspace` are brought back first; raises WorkspaceError, BlobMissing, BlobAltered.
    """
    names, setup = topics if topics is not None else Topics(), setup.redacted(producer.redaction)
    claim = partial(producer.claim, trajectory_id, owner=owner, driver=setup.driver, tenant=tenant)
    writer, before = await _take_up(producer, trajectory_id, setup, claim, takes, from_checkpoint)
    if writer is None:
        async with _over(producer, trajectory_id, before, log, names.events, setup, fork) as session:
            yield session
        return
    pen = WriterPen(writer, leash)
    live: Taking | None = None
    try:
        taking = await _taking(pen, before, mailbox, setup, log, names)
        history = await _record_up_to(producer, await pen.standing())
        begun = await begin_as(log, names.events, trajectory_id, history, fork)
        setup = await begun.ruled(setup)
        check_recorded_drift(setup, history, writer.state)
        back = await reopened(setup, producer, pen, history, begun, from_checkpoint)
        if writer.state.open_intents:
            history = await _settled(setup, producer, pen, history, taking)
        producer.close_history(trajectory_id)
        session, record = session_of(setup, trajectory_id, history, pen, begun, back, taking)
        live = taking
        await session.start(back.recall)
        async with _running(session, record):
            yield session
    except Cancelled as error:
        await obey(pen, error)
        raise
    except Exception as error:
        await _leave(pen, error, left_over=live is not None and live.left_over)
        raise
    finally:
        producer.close_history(trajectory_id)
    await pen.release()


async def _taking(
    pen: WriterPen, before: History, mailbox: Mailbox | None, setup: Setup, log: Log, names: Topics
) -> Taking:
    """Takes what has come to a trajectory that was begun; what came before its start is taken after it. Raises
    Cancelled, UnknownSchema before anything is taken."""
    check_known(pen.writer.trajectory_id, before, pen.writer.state)
    own = mailbox if mailbox is not None else LogMailbox(log, names.inbox, pen.writer.trajectory_id, clock=setup.clock)
    trajectory_id = pen.writer.trajectory_id
    again = Retrying(log, names.events, trajectory_id, settling_of(setup, trajectory_id, pen))
    taking = Taking(pen, own, setup.clock, partial(unfit, setup.tools), again)
    if pen.writer.state.task is not None:
        await taking.look()
        await expire_requests(pen, await pen.standing(), setup.clock)
        check_cancelled(taking, await pen.standing())
    return taking


async def _settled(setup: Setup, producer: EventProducer, pen: WriterPen, history: History, taking: Taking) -> History:
    """The record after every open call was settled. Raises as `settle_all`, and Cancelled."""
    writer = pen.writer
    await settle_all(setup, writer.trajectory_id, pen, history, writer.state, taking.retried)
    history = await _record_up_to(producer, await writer.confirm())
    check_cancelled(taking, writer.state)
    return history


async def _take_up(
    producer: EventProducer,
    trajectory_id: str,
    setup: Setup,
    claim: Callable[..., Awaitable[TrajectoryWriter]],
    takes: Takes | None,
    from_checkpoint: bool,
) -> tuple[TrajectoryWriter | None, History]:
    """The claim, and the record before it; no claim of what has ended."""
    try:
        history = await producer.history(trajectory_id, from_checkpoint=setup.store if from_checkpoint else None)
        _check_driver(history.state, setup.driver)
        if history.state.task is not None and history.state.task.origin is not None:
            history = await producer.whole_history(trajectory_id)
        if not history.state.ended:
            return await claim(takes=takes), history
        history = await producer.whole_history(trajectory_id)
    except BaseException:
        producer.close_history(trajectory_id)
        raise
    producer.close_history(trajectory_id)
    return None, history


@asynccontextmanager
async def _over(
    producer: EventProducer,
    trajectory_id: str,
    ended: History,
    log: Log,
    topic: str,
    setup: Setup,
    fork: Fork | None,
) -> AsyncIterator[Session]:
    """A session of a trajectory that has ended."""
    begun = await begin_as(log, topic, trajectory_id, ended, fork)
    setup = await begun.ruled(setup)
    session, _ = session_of(setup, trajectory_id, ended, EndedPen(trajectory_id), begun)
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


async def _record_up_to(producer: EventProducer, state: State) -> History:
    """The accepted events up to this state's head, and no later owner's."""
    history = await producer.history(state.trajectory_id)
    return history._replace(accepted=[one for one in history.accepted if one[0].envelope.seq <= state.head.seq])


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


async def _leave(pen: WriterPen, error: Exception, *, left_over: bool) -> None:
    """Releases, when the trajectory is still this process's to release; the error is what is told. With something
    `left_over` it is gone on with at once: what it says that it waits for may be what was taken meanwhile."""
    if isinstance(error, Fenced):
        return
    reason = f"left with {type(error).__name__}: {error}"[:TEXT_FIELD_CHARS_MAX]
    parked, waits_for = parked_of(error), error.waits_for if isinstance(error, SessionWaits) else ""
    if left_over and isinstance(error, SessionWaits | PersonNeeded):
        parked, waits_for = Parked.LEFT, ""
    try:
        await pen.release(reason, parked=parked, waits_for=waits_for)
    except TracklogError as also:
        error.add_note(f"the trajectory could not be released: {also}")
