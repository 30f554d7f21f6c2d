"""Strict replay: an agent over its record alone. No log, no model, no tool: what is not recorded is a divergence."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from tracklog.producers.again import Again, Asking
from tracklog.producers.calls import Calls, settling_of
from tracklog.producers.cursor import Cursor, describe
from tracklog.producers.divergence import Cause, Diverged, Divergence
from tracklog.producers.fork_start import Fork
from tracklog.producers.lineage import Lineage
from tracklog.producers.outside import raised_at, watched
from tracklog.producers.places import Places
from tracklog.producers.record import Record, Stage
from tracklog.producers.rule import SESSION_RULE, Rule, imported_rule
from tracklog.producers.sandbox import sandbox_of
from tracklog.producers.session import Session
from tracklog.producers.setup import Setup
from tracklog.schemas import events as ev
from tracklog.schemas.codec import Event
from tracklog.schemas.errors import InvalidEvent, SessionError, TracklogError

__all__ = ["Report", "replay"]

Program = Callable[[Session], Awaitable[object]]


class Report(NamedTuple):
    """What a replay found. `given`: recorded events that were given out. `ended`: the record has an end.

    A record without an end is that of a run that was cut off: it is replayed as far as it goes.
    """

    trajectory_id: str
    turns: int
    given: int
    ended: bool
    divergence: Divergence | None

    @property
    def clean(self) -> bool:
        return self.divergence is None


async def replay(
    events: Iterable[Event],
    program: Program,
    *,
    setup: Setup,
    inherited: Sequence[Event] = (),
    rule: Rule | None = None,
    again: Iterable[Again] = (),
    staged: Callable[[Cursor], Stage] | None = None,
) -> Report:
    """Runs the program over the record; nothing is written and nothing is called.

    What its own code reads outside the session (clock, randomness, ids, listings, environment) and any use of the
    network is a divergence that names file and line. `again` says what is asked once more and compared.

    `inherited` is what a fork has from its origins (`read_inherited`). `rule` is the one that contexts were made by;
    None for that of the record. `staged` makes what has each event given out at its turn
    among those of others. An imported run is replayed as far as it says what its harness did: why it stopped is not
    known, so a program may go on where it does. An error that the program ends with is a divergence, but at the end of
    a record that has none. Raises what reading a blob, or asking a model again, raises, and InvalidEvent for no events
    at all.
    """
    history, setup = tuple(events), setup.redacted(None)
    if not history:
        raise InvalidEvent("there is nothing to replay: no events", hint="is the trajectory id right?")
    trajectory_id = history[0].envelope.trajectory_id
    cursor = Cursor(history, Places(trajectory_id, inherited))
    ended = any(isinstance(event.body, ev.TaskEnded) for event in history) and not cursor.cancelled
    fork = Fork.recorded(history)
    if fork is not None:
        setup = await asyncio.to_thread(fork.ruled, setup)
    if rule is None:
        rule = imported_rule(history, setup.store) if cursor.imported else SESSION_RULE
    pen = _NoPen(cursor, ended and not cursor.imported)
    stage = staged(cursor) if staged is not None else None
    session, total = _session(setup, trajectory_id, pen, cursor, fork, rule, again, stage), cursor.left
    divergence = await _run(session, program, cursor, ended=ended)
    return Report(trajectory_id, cursor.turn, total - cursor.left, ended, divergence)


async def _run(session: Session, program: Program, cursor: Cursor, *, ended: bool) -> Divergence | None:
    try:
        await session.start()
        with watched(lambda read: _outside(cursor, read)):
            await program(session)
        cursor.check_all_given("the end of the program")
    except Diverged as error:
        return error.divergence
    except Exception as error:
        if cursor.divergence is not None:
            return cursor.divergence  # what a program makes of it is its own affair
        if isinstance(error, TracklogError) and not isinstance(error, SessionError | InvalidEvent):
            raise
        return None if isinstance(error, _CutOff) else _failed(cursor, error, ended=ended)
    finally:
        session.close()
    return None


def _failed(cursor: Cursor, error: Exception, *, ended: bool) -> Divergence | None:
    """None where the record stops too: so it was left, perhaps by the same error."""
    found, asked = cursor.next_open(), f"nothing: {type(error).__name__}: {error}, raised at {raised_at(error)}"
    if found is None:
        return Divergence(cursor.turn, None, "nothing", asked) if ended else None
    return Divergence(found.turn, found.seq, describe(found.body), asked)


def _outside(cursor: Cursor, read: str) -> Diverged:
    found = cursor.next_open()
    if found is None:
        return cursor.broken(Divergence(cursor.turn, None, "nothing", read, Cause.ENVIRONMENT))
    return cursor.broken(Divergence(cursor.turn, found.seq, describe(found.body), read, Cause.ENVIRONMENT))


def _session(
    setup: Setup,
    trajectory_id: str,
    pen: _NoPen,
    cursor: Cursor,
    fork: Fork | None,
    rule: Rule,
    again: Iterable[Again],
    stage: Stage | None,
) -> Session:
    record = Record(
        trajectory_id,
        cursor,
        pen,
        setup.store,
        body_inline_bytes_max=setup.body_inline_bytes_max,
        rule=rule,
        asking=Asking(cursor, again),
        stage=stage,
        redaction=setup.redaction,
    )
    settling = settling_of(setup, trajectory_id, pen)
    sandbox = sandbox_of(fork, Lineage(cursor.places.inherited)) if fork is not None else None
    return Session(setup, record, Calls(setup, record, settling, sandbox), strict=True, fork=fork)


class _CutOff(Exception):
    """The end of a record that has no end."""


class _NoPen:
    """Refuses to go live."""

    epoch = 0

    def __init__(self, cursor: Cursor, ended: bool) -> None:
        self._cursor = cursor
        self._ended = ended

    def check_live(self, asked: str) -> None:
        """Raises always: there is nothing live in a replay."""
        if not self._ended:
            raise _CutOff  # what ran beside it may be recorded still, and is given to who asks for it
        self._cursor.check_all_given(asked)
        raise self._cursor.broken(Divergence(self._cursor.turn, None, "nothing", asked))

    async def append(
        self, body: ev.EventBody, *, turn: int, cause: int | None, ext: Mapping[str, str] | None = None
    ) -> int:
        self.check_live(type(body).__name__)
        raise AssertionError("a replay went live")

    async def confirm(self, seq: int) -> None:
        """Everything in the record is accepted."""
