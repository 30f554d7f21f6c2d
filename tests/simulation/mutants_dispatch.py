"""Weakened rules of dispatchers and of the ledger, planted one at a time (see `mutants`)."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from typing import Any, Final
from unittest.mock import patch

from tests.simulation.log import Store
from tests.simulation.truth import TOPICS
from tracklog.consumers.dispatch import attempt, ledger, partitions
from tracklog.consumers.dispatch.attempt import Attempting, Report
from tracklog.consumers.dispatch.dispatcher import SEEN_S_MAX, Dispatcher
from tracklog.consumers.dispatch.follow import Followed, Intended, follow
from tracklog.consumers.dispatch.plan import Do, Known, Step, next_step
from tracklog.consumers.dispatch.slots import Row, entered
from tracklog.infra.clock import TwoClocks
from tracklog.producers.dispatched import Dispatched
from tracklog.producers.post import Poster
from tracklog.producers.tool_run import Ran
from tracklog.schemas import events as ev
from tracklog.schemas.codec import Event
from tracklog.schemas.errors import AppendUnknown
from tracklog.schemas.ledger import Attempt, Done
from tracklog.schemas.lifecycle import lane_of
from tracklog.schemas.values import Body, Effect, Place, ResultStatus, Settled

__all__ = ["DISPATCH", "Mutant"]

FOR_EVER_US: Final = 2**62
GRACE_US: Final = 30_000_000
Mutant = Callable[[], AbstractContextManager[Any]]


def _plan(change: Callable[[ev.ToolIntent, Row, Known, Step], Step | None]) -> Mutant:
    """A plan in which `change` puts another step in place of some."""

    def changed(intent: ev.ToolIntent, row: Row, known: Known) -> Step:
        step = next_step(intent, row, known)
        other = change(intent, row, known, step)
        return step if other is None else other

    return lambda: patch.object(attempt, "next_step", changed)


def _waits(row: Row, step: Step) -> bool:
    return step.do is Do.WAIT and row.last is not None and row.last.tries


def _over(row: Row, known: Known, after_us: int = 0) -> bool:
    """Whether the last attempt's own deadline has passed, and so much more."""
    return row.last is not None and known.latest_us >= (row.last.not_after or 0) + after_us


def _absent_is_enough(intent: ev.ToolIntent, row: Row, known: Known, step: Step) -> Step | None:
    return Step(Do.REPORT_EXPIRED, len(row.slots)) if step.do is Do.EXPIRE and known.absent else None


def _asks_at_once(intent: ev.ToolIntent, row: Row, known: Known, step: Step) -> Step | None:
    return Step(Do.ASK, len(row.slots)) if _waits(row, step) and intent.effect is Effect.OPAQUE else None


def _settles(row: Row, known: Known, after_us: int = 0) -> Step:
    """What follows a wait, so much after the deadline of the last attempt; the wait until then."""
    if not _over(row, known, after_us):
        return Step(Do.WAIT, len(row.slots), (row.slots[-1].not_after or 0) + after_us)
    if known.absent:
        return Step(Do.EXPIRE, len(row.slots) + 1)
    return Step(Do.PROBE if known.has_probe else Do.ASK, len(row.slots))


def _asks_after_the_deadline(intent: ev.ToolIntent, row: Row, known: Known, step: Step) -> Step | None:
    return _settles(row, known) if _waits(row, step) and intent.effect is Effect.OPAQUE else None


def _probes_after_the_deadline(intent: ev.ToolIntent, row: Row, known: Known, step: Step) -> Step | None:
    return _settles(row, known) if _waits(row, step) and intent.effect is Effect.PROBE else None


def _deadline_of_the_call(intent: ev.ToolIntent, row: Row, known: Known, step: Step) -> Step | None:
    mine = known.won == len(row.slots) > 0 and not known.cancelled and intent.effect is not Effect.IDEMPOTENT
    until_us = intent.not_after or 0
    runs = mine and step.do in (Do.RUN, Do.EXPIRE) and known.latest_us < until_us
    return Step(Do.RUN, len(row.slots), until_us) if runs else None


def _key_lives_for_ever(intent: ev.ToolIntent, row: Row, known: Known, step: Step) -> Step | None:
    doubt = intent.effect is Effect.IDEMPOTENT and row.last is not None and row.last.tries
    sends = doubt and step.do in (Do.RUN, Do.WAIT, Do.PROBE, Do.ASK) and row.pending_until is None
    return Step(Do.RUN, len(row.slots), FOR_EVER_US) if sends and known.sends < 5 else None


def _key_is_not_waited_for(intent: ev.ToolIntent, row: Row, known: Known, step: Step) -> Step | None:
    return _settles(row, known, GRACE_US) if _waits(row, step) and intent.effect is Effect.IDEMPOTENT else None


def _idempotent_expires(intent: ev.ToolIntent, row: Row, known: Known, step: Step) -> Step | None:
    mine = known.won == len(row.slots) > 0 and intent.effect is Effect.IDEMPOTENT and step.do is not Do.NOTHING
    return Step(Do.EXPIRE, len(row.slots) + 1) if mine and _over(row, known) else None


def _cancels_without_a_slot(intent: ev.ToolIntent, row: Row, known: Known, step: Step) -> Step | None:
    return Step(Do.REPORT_EXPIRED, 0) if step.do is Do.EXPIRE and known.cancelled and not row.slots else None


def _late_winner_reports(intent: ev.ToolIntent, row: Row, known: Known, step: Step) -> Step | None:
    over = step.do is Do.EXPIRE and known.won == len(row.slots)
    return Step(Do.REPORT_EXPIRED, len(row.slots)) if over and row.slots else None


def _sends_again(intent: ev.ToolIntent, row: Row, known: Known, step: Step) -> Step | None:
    """Whoever holds the slot sends, also when it has sent before."""
    last = row.last
    mine = _waits(row, step) and last is not None and last.not_after is not None and known.latest_us < last.not_after
    return Step(Do.RUN, len(row.slots), last.not_after or 0) if mine and last is not None else None


def _does_not_wait_for_jobs(intent: ev.ToolIntent, row: Row, known: Known, step: Step) -> Step | None:
    waits = _waits(row, step) and row.pending_until is not None
    return next_step(intent, row._replace(pending_until=None), known) if waits else None


@contextmanager
def _name_for_nonce() -> Iterator[None]:
    begin = Dispatcher.__init__

    def named(self: Any, *args: Any, **options: Any) -> None:
        begin(self, *args, **options)
        self.nonce = hashlib.sha256(self.name.encode()).digest()[:16]

    with patch.object(Dispatcher, "__init__", named):
        yield


async def _bid_by_ack(self: Any, step: Step) -> Row:
    now_us = self._known().latest_us
    not_after = min(self._call.intent.not_after, now_us + 30_000_000)
    row: Row = await self._desk.enter(self._call, step.slot, Attempt(dispatcher=self._desk.name, not_after=not_after))
    self._won = step.slot
    return row


@contextmanager
def _tried_is_forgotten() -> Iterator[None]:
    assigned = Dispatcher._assigned

    def forgetting(self: Any, partition: int, found: Any) -> None:
        left = tuple(one for one in found.calls if not found.rows[one.hash].slots)
        assigned(self, partition, found._replace(calls=left))

    with patch.object(Dispatcher, "_assigned", forgetting):
        yield


@contextmanager
def _loser_leaves() -> Iterator[None]:
    bid = Attempting._bid

    async def leaving(self: Any, step: Step) -> Row:
        row: Row = await bid(self, step)
        self._call.open = self._won is not None
        return row

    with patch.object(Attempting, "_bid", leaving):
        yield


@contextmanager
def _deadline_first() -> Iterator[None]:
    """The plan looks at the deadline; what is waited for after that, does not."""
    context = Attempting._context

    def late(self: Any, step: Step) -> Any:
        return replace(context(self, step), deadline_us=FOR_EVER_US)

    with patch.object(attempt, "timely", lambda tool, *_: tool), patch.object(Attempting, "_context", late):
        yield


@contextmanager
def _monotonic_alone() -> Iterator[None]:
    context = Attempting._context

    def late(self: Any, step: Step) -> Any:
        return replace(context(self, step), deadline_us=FOR_EVER_US)

    with patch.object(TwoClocks, "latest_us", TwoClocks._steady_us), patch.object(Attempting, "_context", late):
        yield


def _behind_done(row: Row, record: Any, timestamp_ms: int) -> Row:
    after = entered(row._replace(done=False), record, timestamp_ms)
    return after._replace(done=(row.done and len(after.slots) == len(row.slots)) or after.done)


@contextmanager
def _slots_behind_done() -> Iterator[None]:
    with patch.object(ledger, "entered", _behind_done), patch.object(partitions, "entered", _behind_done):
        yield


async def _done_first(self: Any, slot: int, ran: Any, settled: Settled) -> bool:
    if slot > 0:
        await self._desk.enter(self._call, slot, Done(dispatcher=self._desk.name, status=ran.status))
    await self._desk.report(self._call, Report(slot, ran, settled))
    return False


@contextmanager
def _unknown_is_there() -> Iterator[None]:
    post = Poster.post

    async def posting(self: Any, *args: Any, **options: Any) -> Any:
        try:
            return await post(self, *args, **options)
        except AppendUnknown:
            return None

    with patch("tracklog.producers.post.POST_S_MAX", 0.0), patch.object(Poster, "post", posting):
        yield


async def _open_as_known(self: Any, call: Any) -> bool:
    return bool(call.open)


@contextmanager
def _cancelled_is_read_enough() -> Iterator[None]:
    """Whoever learns of a cancel reads no further: it does not see a result that comes behind it."""

    async def hasty(self: Any, call: Any) -> bool:
        partition = self._at(call)
        end = await self._ends.of(partition)
        while call.open and not call.cancelled:
            owned = self._partitions.get(partition)
            if owned is None or owned.position >= end:
                break
            await asyncio.wait_for(owned.moved.wait(), SEEN_S_MAX)
        return bool(call.open)

    with patch.object(Dispatcher, "is_open", hasty):
        yield


@contextmanager
def _events_not_read() -> Iterator[None]:
    """News of events come late, which is harmless as long as they are read before a send."""
    news = Store.news

    async def late(self: Any, topic: str, known: int) -> None:
        await news(self, topic, known)
        if topic == TOPICS.events:
            await asyncio.sleep(self.loop.chance.uniform(0.0, 2.0))

    with patch.object(Store, "news", late), patch.object(Dispatcher, "is_open", _open_as_known):
        yield


@contextmanager
def _key_of_the_attempt() -> Iterator[None]:
    context = Attempting._context

    def keyed(self: Any, step: Step) -> Any:
        made = context(self, step)
        object.__setattr__(made, "idempotency_key", f"{made.idempotency_key} {made.attempt}")
        return made

    with patch.object(Attempting, "_context", keyed):
        yield


def _follow_all(known: Followed, event: Event) -> Followed:
    after = follow(known, event)
    body, envelope = event.body, event.envelope
    if isinstance(body, ev.ToolIntent) and body.place is Place.DISPATCH and body.call_id not in after.calls:
        lane = lane_of(envelope.ext)
        one = Intended(envelope.trajectory_id, envelope.tenant, envelope.epoch, envelope.seq, lane, event.hash, body)
        return after._replace(calls={**after.calls, body.call_id: one})
    return after


@contextmanager
def _owner_cancels() -> Iterator[None]:
    result = Dispatched.result

    async def settling(self: Any, call: Any) -> Any:
        taking = self._record.taking
        await taking.look()
        if taking.cancelled is None or call.call_id in taking.results:
            return await result(self, call)
        body = ev.ToolResult(
            call_id=call.call_id, status=ResultStatus.EXPIRED, output=Body.of(""), settled=Settled.EXPIRED
        )
        return await taking._pen.append(body, turn=0, cause=None), body

    with patch.object(Dispatched, "result", settling):
        yield


@contextmanager
def _won_for_ever() -> Iterator[None]:
    run = Attempting._run

    async def running_again(self: Any, step: Step) -> bool:
        won = self._won
        going_on = await run(self, step)
        self._won = won
        return going_on

    with ExitStack() as stack:
        stack.enter_context(patch.object(Attempting, "_run", running_again))
        yield


DISPATCH: Final[dict[str, Mutant]] = {
    "a process name for a nonce [Y01, X11]": _name_for_nonce,
    "no read-back of the ledger [X01, X02]": lambda: patch.object(Attempting, "_bid", _bid_by_ack),
    "any holder of the slot counts as oneself [X02]": lambda: patch.object(
        Dispatcher, "holds", lambda self, row, slot: True
    ),
    "the deadline of the call for that of its attempt [X10]": _plan(_deadline_of_the_call),
    "the deadline is not looked at last [rule 5]": _deadline_first,
    "a deadline by monotonic time alone": _monotonic_alone,
    "a probe that does not wait for the grace [rule 7]": _plan(_probes_after_the_deadline),
    "a person is asked before the grace is over [X08]": _plan(_asks_after_the_deadline),
    "a person is asked at once [X08]": _plan(_asks_at_once),
    "expired because a probe said so, without a slot [X05]": _plan(_absent_is_enough),
    "a winner that is late reports expired, without a slot [X06]": _plan(_late_winner_reports),
    "an idempotent call expires [X07]": _plan(_idempotent_expires),
    "a key is used after its life [X17-X19]": _plan(_key_lives_for_ever),
    "settled while the key may be used [X20-X22]": _plan(_key_is_not_waited_for),
    "a key for each attempt [rule 7]": _key_of_the_attempt,
    "slots are taken behind a Done [rule 4]": _slots_behind_done,
    "a call that was tried is forgotten by the next [X12]": _tried_is_forgotten,
    "a loser leaves the call [X12]": _loser_leaves,
    "sent again in one's own slot [X12]": _plan(_sends_again),
    "a slot that was used counts as not used [X12]": _won_for_ever,
    "a cancel without a slot [X13]": _plan(_cancels_without_a_slot),
    "the owner itself ends a cancelled call [X13]": _owner_cancels,
    "the events are not read before the send [K03, K08]": _events_not_read,
    "the events are not read before a cancelled call is sent [K03]": _cancelled_is_read_enough,
    "Done before the outcome [rule 5]": lambda: patch.object(Attempting, "_end", _done_first),
    "an outcome that is unknown counts as sent [rule 2]": _unknown_is_there,
    "a time-out counts as known": lambda: patch.object(Ran, "known", True),
    "a job is not waited for": _plan(_does_not_wait_for_jobs),
    "intents that were not accepted [intent before effect]": lambda: patch.object(partitions, "follow", _follow_all),
    "a cancelled call is looked at again and again": lambda: patch.object(Attempting, "_rests_on_its_key", False),
}
