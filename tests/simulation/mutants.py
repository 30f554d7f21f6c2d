"""Weakened rules, planted one at a time: each has to be found by some seed of the first thousand.

The brackets name the rule of DESIGN §8 or the model's counterexample that a mutant breaks.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, Final
from unittest.mock import patch

from tracklog.consumers.dispatch import attempt, partitions
from tracklog.consumers.dispatch.attempt import Attempting, Report
from tracklog.consumers.dispatch.dispatcher import Dispatcher
from tracklog.consumers.dispatch.follow import Followed, Intended, follow
from tracklog.consumers.dispatch.plan import Do, Known, Step, next_step
from tracklog.consumers.dispatch.slots import Row
from tracklog.producers.dispatched import Dispatched
from tracklog.producers.lanes import Lanes
from tracklog.producers.post import Poster
from tracklog.schemas import events as ev
from tracklog.schemas.codec import Event
from tracklog.schemas.errors import AppendUnknown
from tracklog.schemas.ledger import Attempt, Done
from tracklog.schemas.lifecycle import EXT_LANE, lane_of
from tracklog.schemas.values import Body, Effect, Place, ResultStatus, Settled

__all__ = ["MUTANTS"]

FOR_EVER_US: Final = 10**15
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


def _absent_is_enough(intent: ev.ToolIntent, row: Row, known: Known, step: Step) -> Step | None:
    return Step(Do.REPORT_EXPIRED, len(row.slots)) if step.do is Do.EXPIRE and known.absent else None


def _asks_at_once(intent: ev.ToolIntent, row: Row, known: Known, step: Step) -> Step | None:
    return Step(Do.ASK, len(row.slots)) if _waits(row, step) and intent.effect is Effect.OPAQUE else None


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
    return bool(call.open and not call.cancelled)


def _one_lane(self: Any, name: str) -> Any:
    return {EXT_LANE: "0"}


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


MUTANTS: Final[dict[str, tuple[Mutant, int]]] = {
    "a process name for a nonce [Y01, X11]": (_name_for_nonce, 158),
    "no read-back of the ledger [X01, X02]": (lambda: patch.object(Attempting, "_bid", _bid_by_ack), 79),
    "any holder of the slot counts as oneself [X02]": (
        lambda: patch.object(Dispatcher, "holds", lambda self, row, slot: True),
        79,
    ),
    "expired because a probe said so, without a slot [X05]": (_plan(_absent_is_enough), 36),
    "a winner that is late reports expired, without a slot [X06]": (_plan(_late_winner_reports), 1),
    "a person is asked at once [X08]": (_plan(_asks_at_once), 28),
    "a call that was tried is forgotten by the next [X12]": (_tried_is_forgotten, 101),
    "a cancel without a slot [X13]": (_plan(_cancels_without_a_slot), 10),
    "the owner itself ends a cancelled call [X13]": (_owner_cancels, 17),
    "a cancel is not looked for before the send [K03]": (
        lambda: patch.object(Dispatcher, "is_open", _open_as_known),
        308,
    ),
    "Done before the outcome [rule 5]": (lambda: patch.object(Attempting, "_end", _done_first), 0),
    "an outcome that is unknown counts as sent [rule 2]": (_unknown_is_there, 80),
    "sent again in one's own slot [X12]": (_plan(_sends_again), 1),
    "a slot that was used counts as not used [X12]": (_won_for_ever, 20),
    "a key for each attempt [rule 7]": (_key_of_the_attempt, 1),
    "intents that were not accepted [intent before effect]": (
        lambda: patch.object(partitions, "follow", _follow_all),
        3,
    ),
    "open calls share a lane": (lambda: patch.object(Lanes, "ext", _one_lane), 0),
    "a cancelled call is looked at again and again": (
        lambda: patch.object(Attempting, "_rests_on_its_key", False),
        12,
    ),
}
"""What is weakened, and a seed that finds it."""
