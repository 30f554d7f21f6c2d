"""One dispatched call on a desk of its own."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any

import pytest

from tracklog.consumers.dispatch.attempt import Attempting, OpenCall, Report
from tracklog.consumers.dispatch.slots import EMPTY, Row, Slot
from tracklog.infra.clock import Clock, ManualClock
from tracklog.producers.tools import CallContext, Tool
from tracklog.schemas.events import ToolIntent
from tracklog.schemas.ledger import Attempt, Done, Expired, LedgerBody
from tracklog.schemas.values import ZERO_HASH, Body, Effect, Place, ResultStatus

DAY_S = 86_400.0
NOW_US = 1_700_000_000_000_000


class Desk:
    """The ledger is `rows`; `looks` counts how often it was asked for."""

    name = "d"

    def __init__(self, row: Row) -> None:
        self.hand = ManualClock(NOW_US)
        self.clock: Clock = self.hand
        self.now, self.looks = row, 0
        self.reports: list[Report] = []
        self.held = self.quiet = False
        self.told_to_go = self.over = False
        """`over`: a result of the call stands at the end of the events, of which it was not told yet."""
        self.frozen_s = 0.0
        self.meanwhile: Row | None = None
        """What the ledger says when the first who has read it comes to his senses, so many seconds later."""

    async def row(self, call: OpenCall) -> Row:
        self.looks += 1
        assert self.looks < 10, "it asks again and again"
        found, self.now = self.now, self.meanwhile or self.now
        self.hand.advance(self.frozen_s)
        self.frozen_s, self.meanwhile = 0.0, None
        return found

    async def enter(self, call: OpenCall, slot: int, body: LedgerBody) -> Row:
        if isinstance(body, Done):
            self.now = self.now._replace(done=True)
        if isinstance(body, Attempt | Expired):
            not_after = body.not_after if isinstance(body, Attempt) else None
            self.now = self.now._replace(slots=(*self.now.slots, Slot(b"mine", not_after, NOW_US)))
            call.left_at = 0 if self.told_to_go else None
        return self.now

    def holds(self, row: Row, slot: int) -> bool:
        return row.holder(slot) == b"mine"

    async def is_open(self, call: OpenCall) -> bool:
        if self.over:
            call.open = False
        return call.open and (self.quiet or not call.left)

    async def arguments(self, call: OpenCall) -> str:
        return "{}"

    async def report(self, call: OpenCall, report: Report) -> None:
        self.reports.append(report)

    def paused(self, call: OpenCall) -> bool:
        return self.held and call.left

    def turn(self, call: OpenCall) -> AbstractAsyncContextManager[None]:
        return nullcontext()

    async def wait(self, call: OpenCall, seconds: float) -> None:
        self.hand.advance(seconds)
        await asyncio.sleep(0)


async def test_a_cancelled_call_that_rests_on_its_key_is_settled_at_once_and_not_asked_about_for_a_day() -> None:
    # given an idempotent call whose attempt nobody has ended, and a cancel of its trajectory
    intent = ToolIntent(
        call_id="c",
        tool="pay",
        arguments=Body.of("{}"),
        effect=Effect.IDEMPOTENT,
        idempotency_key="k",
        key_ttl_ms=round(DAY_S * 1000),
        not_after=NOW_US + 60_000_000,
        place=Place.DISPATCH,
    )
    call = OpenCall("t", "default", 1, 5, 0, intent, ZERO_HASH, cancelled=True)
    desk = Desk(EMPTY._replace(slots=(Slot(b"another", NOW_US + 30_000_000, NOW_US),)))
    sent: list[str] = []

    async def pay(context: CallContext, arguments: Any) -> str:
        sent.append(context.idempotency_key)
        return "paid"

    tool = Tool("pay", "", {}, pay, Effect.IDEMPOTENT, key_ttl_s=DAY_S, check=lambda _: "")
    # when a dispatcher comes to it
    await Attempting(call, tool, desk, grace_s=60.0, output_bytes_max=1000).settle()
    # then it was sent again under its key, and its outcome said
    assert sent == ["k"]
    assert [one.ran.status for one in desk.reports] == [ResultStatus.OK]


@pytest.mark.parametrize(
    ("held", "quiet", "sent"),
    [
        pytest.param(False, True, True, id="nothing came since"),
        pytest.param(False, False, False, id="something was said of its trajectory since"),
        pytest.param(True, True, False, id="its tool was paused since"),
    ],
)
async def test_a_slot_that_was_won_is_used_or_given_up_aloud_when_its_dispatcher_has_to_go(
    held: bool, quiet: bool, sent: bool
) -> None:
    # given a dispatcher that has to let go of an opaque call in the moment in which it has won its slot
    intent = ToolIntent(
        call_id="c",
        tool="book",
        arguments=Body.of("{}"),
        effect=Effect.OPAQUE,
        not_after=NOW_US + 60_000_000,
        place=Place.DISPATCH,
    )
    call, desk = OpenCall("t", "default", 1, 5, 0, intent, ZERO_HASH), Desk(EMPTY)
    desk.told_to_go, desk.held, desk.quiet = True, held, quiet
    ran: list[str] = []

    async def book(context: CallContext, arguments: Any) -> str:
        ran.append(context.call_id)
        return "booked"

    # when it goes on with that
    tool = Tool("book", "", {}, book, Effect.OPAQUE, check=lambda _: "")
    await Attempting(call, tool, desk, grace_s=60.0, output_bytes_max=1000).settle()
    # then the call is made, or the ledger says that it was not: nobody has to ask a person
    assert ran == (["c"] if sent else [])
    assert desk.now.done is sent
    assert [slot.tries for slot in desk.now.slots] == ([True] if sent else [True, False])


@pytest.mark.parametrize("effect", [Effect.IDEMPOTENT, Effect.PROBE, Effect.OPAQUE])
async def test_a_call_that_has_its_result_is_not_said_to_be_expired_when_its_slots_were_trimmed(effect: Effect) -> None:
    # given a cancelled call whose result was not heard of yet, and a ledger of which nothing about it is kept
    intent = ToolIntent(
        call_id="c",
        tool="book",
        arguments=Body.of("{}"),
        effect=effect,
        idempotency_key="k" if effect is Effect.IDEMPOTENT else "",
        key_ttl_ms=round(DAY_S * 1000) if effect is Effect.IDEMPOTENT else None,
        not_after=NOW_US + 60_000_000,
        place=Place.DISPATCH,
    )
    call, desk = OpenCall("t", "default", 1, 5, 0, intent, ZERO_HASH, cancelled=True), Desk(EMPTY)
    desk.over = True
    # when a dispatcher that was away for long takes its first slot as expired
    await Attempting(call, None, desk, grace_s=60.0, output_bytes_max=1000).settle()
    # then it looks at the events first, and contradicts nobody
    assert [slot.tries for slot in desk.now.slots] == [False]
    assert desk.reports == []


async def test_whoever_is_frozen_behind_his_look_at_the_ledger_asks_nobody_about_a_job_that_began_meanwhile() -> None:
    # given an opaque call that another one has begun, and whose tool says that it answers by itself within the hour
    intent = ToolIntent(
        call_id="c",
        tool="book",
        arguments=Body.of("{}"),
        effect=Effect.OPAQUE,
        not_after=NOW_US + 60_000_000,
        place=Place.DISPATCH,
    )
    begun = EMPTY._replace(slots=(Slot(b"another", NOW_US + 30_000_000, NOW_US),))
    call, desk = OpenCall("t", "default", 1, 5, 0, intent, ZERO_HASH), Desk(begun)
    until_us = NOW_US + 3600 * 1_000_000
    # when somebody has read the ledger just before that, and goes on when the grace of the attempt is over
    desk.frozen_s, desk.meanwhile = 100.0, begun._replace(pending_until=until_us)
    await Attempting(call, None, desk, grace_s=60.0, output_bytes_max=1000).settle()
    # then a person is asked when the job's own time is over, not before
    assert [one.ran.status for one in desk.reports] == [ResultStatus.UNKNOWN]
    assert desk.clock.now_us() >= until_us + 60_000_000
