"""One dispatched call on a desk of its own."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any

from tracklog.consumers.dispatch.attempt import Attempting, OpenCall, Report
from tracklog.consumers.dispatch.slots import EMPTY, Row, Slot
from tracklog.infra.clock import Clock, ManualClock
from tracklog.producers.tools import CallContext, Tool
from tracklog.schemas.events import ToolIntent
from tracklog.schemas.ledger import Done, LedgerBody
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

    async def row(self, call: OpenCall) -> Row:
        self.looks += 1
        assert self.looks < 10, "it asks again and again"
        return self.now

    async def enter(self, call: OpenCall, slot: int, body: LedgerBody) -> Row:
        if isinstance(body, Done):
            self.now = self.now._replace(done=True)
        return self.now

    def holds(self, row: Row, slot: int) -> bool:
        return False

    async def is_open(self, call: OpenCall) -> bool:
        return call.open and not call.cancelled

    async def arguments(self, call: OpenCall) -> str:
        return "{}"

    async def report(self, call: OpenCall, report: Report) -> None:
        self.reports.append(report)

    def paused(self, call: OpenCall) -> bool:
        return False

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
