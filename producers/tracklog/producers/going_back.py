"""Going on from an earlier turn of a run that did not come out well: a fork that takes over (DESIGN §7).

A record is never taken back. So the run is ended as cancelled, and another trajectory goes on from the turn, as a fork
whose tools are live. One record in that one's inbox asks for all of it; the worker that takes it up ends the run first,
by a claim, which fences whoever had it, and then marks it by another claim: of two that would take it over the first
mark counts. A run with a call that may have happened is not ended, and nothing goes on.

What the run did after the turn has happened: `Sandbox` sees to it that nothing of it happens again in silence.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from tracklog.infra.log.port import Log
from tracklog.producers.cancelling import obey
from tracklog.producers.cursor import ASIDE
from tracklog.producers.fork_start import Fork
from tracklog.producers.history import read_history, started_of
from tracklog.producers.lineage import ORIGINS_MAX, fork_point, read_inherited
from tracklog.producers.pen import WriterPen
from tracklog.producers.producer import EventProducer
from tracklog.producers.writer import TrajectoryWriter
from tracklog.schemas import events as ev
from tracklog.schemas.codec import Event
from tracklog.schemas.errors import Cancelled, InputError, InvalidEvent
from tracklog.schemas.lifecycle import Parked
from tracklog.schemas.values import Driver

__all__ = ["EXT_REASON", "EXT_TAKES_OVER", "Successor", "discarded", "end_run", "read_discarded", "successor_of"]

EXT_TAKES_OVER: Final = "takes_over"
"""In `ext` of a Submit: the run that the new trajectory takes over."""
EXT_REASON: Final = "reason"
"""In `ext` of the same: why, in words."""
TAKEN_OVER: Final = "taken over: "
"""Starts the reason of the claim that marks a run."""
REASON_CHARS_MAX: Final = 1000
ID_HEX: Final = 8
_SUFFIX: Final = re.compile(r"\.turn-\d+-[0-9a-f]{8}\Z")


class Successor(NamedTuple):
    trajectory_id: str
    task: ev.TaskStarted


def successor_of(log: Log, topic: str, trajectory_id: str, turn: int) -> Successor:
    """What goes on from this turn of a run; the same one each time until the run itself has got on. Blocks.

    Raises InputError for a turn that is not there, InvalidEvent for a run that another trajectory took over.
    """
    own = [event for event, _ in read_history(log, topic, trajectory_id)[1]]
    started = started_of(own)
    if started is None:
        raise InputError(f"no trajectory {trajectory_id!r} that was started", hint="see: tracklog list")
    point = fork_point((*read_inherited(log, topic, own), *own), turn)
    name = f"{_SUFFIX.sub('', trajectory_id)}.turn-{turn}-{_digest(trajectory_id, turn, own)}"
    mark = mark_in(own)
    if mark and not mark.startswith(f"{TAKEN_OVER}{name} "):
        raise InvalidEvent(f"trajectory {trajectory_id!r} was {mark}", hint="go back from a turn of that one")
    task = ev.TaskStarted(
        driver=Driver.WORKER,
        task=started.task,
        agent=started.agent,
        labels=started.labels,
        swarm=started.swarm,
        on_behalf_of=started.on_behalf_of,
        budgets=started.budgets,
        origin=point,
        inherited_turn=turn,
    )
    return Successor(name, task)


async def end_run(
    producer: EventProducer, log: Log, topic: str, trajectory_id: str, successor_id: str, reason: str, *, owner: str
) -> str:
    """Ends a run and marks it as taken over. Returns why the successor must not go on, "" when it may.

    Raises ClaimLost, Fenced, TrajectoryFaulty, Undecided, and what reading a range raises.
    """
    mark = f"{TAKEN_OVER}{successor_id} goes on{f' ({reason[:REASON_CHARS_MAX]})' if reason else ''}"
    try:
        if not (await producer.track_of(trajectory_id)).state.ended:
            why = await _end(await producer.claim(trajectory_id, owner=owner, driver=Driver.WORKER), owner, mark)
            if why:
                return why
        if not await asyncio.to_thread(_marked, log, topic, trajectory_id):
            writer = await producer.claim(trajectory_id, owner=owner, driver=Driver.WORKER, reason=mark)
            await WriterPen(writer).release(mark)
        first = await asyncio.to_thread(_marked, log, topic, trajectory_id)
        return "" if first.startswith(f"{TAKEN_OVER}{successor_id} ") else f"{trajectory_id!r} was {first}"
    finally:
        producer.forget(trajectory_id)


async def _end(writer: TrajectoryWriter, owner: str, mark: str) -> str:
    """Ends what is not in doubt; returns what is."""
    pen = WriterPen(writer)
    for call_id in writer.state.open_intents:
        why = f"call {call_id!r} of {writer.trajectory_id!r} may have happened and has no outcome"
        await pen.release(why, parked=Parked.DOUBT)
        return why
    await pen.append(ev.CancelRequested(by=owner, reason=mark), turn=writer.state.turn, cause=None)
    await obey(pen, Cancelled(f"trajectory {writer.trajectory_id!r} was cancelled: {mark}"))
    return ""


def _marked(log: Log, topic: str, trajectory_id: str) -> str:
    """By whom a run was taken over, in words; "" when it was not. Blocks."""
    return mark_in(event for event, _ in read_history(log, topic, trajectory_id)[1])


def mark_in(events: Iterable[Event]) -> str:
    """The first mark in these accepted events of a run, "" for none."""
    reasons = (one.body.reason for one in events if isinstance(one.body, ev.OwnershipClaimed))
    return next((reason for reason in reasons if reason.startswith(TAKEN_OVER)), "")


async def read_discarded(log: Log, topic: str, fork: Fork, inherited: Sequence[Event]) -> tuple[Event, ...]:
    """See `discarded`."""
    return await asyncio.to_thread(discarded, log, topic, fork, inherited)


def discarded(log: Log, topic: str, fork: Fork, inherited: Sequence[Event]) -> tuple[Event, ...]:
    """What the runs before this fork did and it does not inherit, oldest run first. Blocks. Raises InputError."""
    kept = {(one.envelope.trajectory_id, one.envelope.seq) for one in inherited}
    found: tuple[Event, ...] = ()
    before: Fork | None = fork
    for _ in range(ORIGINS_MAX):
        if before is None or not before.takes_over:
            return found
        events = [event for event, _ in read_history(log, topic, before.takes_over)[1]]
        left = (one for one in events if (one.envelope.trajectory_id, one.envelope.seq) not in kept)
        found = (*left, *found)
        before = Fork.recorded(events)
    raise InputError(f"more than {ORIGINS_MAX} runs have taken over from one another")


def _digest(trajectory_id: str, turn: int, events: Sequence[Event]) -> str:
    """Of the run up to the last event that its program asked for."""
    aside = (*ASIDE, ev.TaskEnded)
    last = next((one.hash for one in reversed(events) if not isinstance(one.body, aside)), b"")
    return hashlib.sha256(f"{trajectory_id} {turn} {last.hex()}".encode()).hexdigest()[:ID_HEX]
