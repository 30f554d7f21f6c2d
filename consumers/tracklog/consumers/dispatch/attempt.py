"""One dispatched call, from when its intent is accepted up to when its outcome is in the inbox (DESIGN §8, 5 to 8).

Everything outside comes in through a `Desk`, so the same steps run on a real log and in the simulation.
"""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Final, Protocol

from tracklog.consumers.dispatch.plan import Do, Known, Step, next_step
from tracklog.consumers.dispatch.slots import Row
from tracklog.infra.clock import Clock, TwoClocks
from tracklog.producers.precondition import unmet
from tracklog.producers.tool_run import Ran, run_probe, run_tool, timely
from tracklog.producers.tools import CallContext, ProbeAnswer, Tool
from tracklog.schemas.events import ToolIntent
from tracklog.schemas.ledger import Attempt, Done, Expired, LedgerBody, Pending
from tracklog.schemas.limits import TEXT_FIELD_CHARS_MAX
from tracklog.schemas.values import Effect, ResultStatus, Settled

__all__ = ["Attempting", "Desk", "OpenCall", "Report"]

START_WITHIN_S: Final = 30.0
"""From winning a slot to the send: the bound of an attempt, after which its effect lands within the grace or never."""
SEND_AGAIN_S: Final = 1.0
"""The pause before a call is sent again under its key; it doubles each time."""
PROBE_AGAIN_S: Final = 5.0
_US: Final = 1_000_000
LEFT: Final = "not started: its dispatcher had to let go of it"
NEVER: Final = "the call did not happen, and never will"


@dataclass(slots=True, eq=False)
class OpenCall:
    """An accepted intent without a result. `open` and `cancelled` follow the events; `changed` is set when they do.

    `fresh`: its intent has just been read, so the ledger is not asked before the first bid: who was first is told by
    reading the bid back, whatever was there. `left_at`: the offset up to which its events were followed when its
    partition was let go of; None while it is held.
    """

    trajectory_id: str
    tenant: str
    epoch: int
    seq: int
    lane: int
    intent: ToolIntent
    hash: bytes
    open: bool = True
    cancelled: bool = False
    escalated: bool = False
    fresh: bool = False
    left_at: int | None = None
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def left(self) -> bool:
        """Nothing is begun for it here any more; what was bid for and won is."""
        return self.left_at is not None


@dataclass(frozen=True, slots=True)
class Report:
    """What is said of a call into its trajectory's inbox. A status of `unknown` asks for a person."""

    slot: int
    ran: Ran
    settled: Settled


class Desk(Protocol):
    """What one call needs of the process that dispatches it."""

    name: str
    clock: Clock

    async def row(self, call: OpenCall) -> Row:
        """What the ledger says of the call at its present end; of a fresh call what is known. Raises LogUnavailable."""

    async def enter(self, call: OpenCall, slot: int, body: LedgerBody) -> Row:
        """Appends to the ledger and reads it back. Raises LogUnavailable, and AppendUnknown past its bound."""

    def holds(self, row: Row, slot: int) -> bool:
        """Whether this start of the process holds the slot."""

    async def is_open(self, call: OpenCall) -> bool:
        """Whether the call has no result at the present end of the events; `call.cancelled` is as they say it too.

        False as well for one that was let go of, when anything was said of its trajectory since.
        """

    async def arguments(self, call: OpenCall) -> str:
        """The whole arguments. Raises BlobError."""

    async def report(self, call: OpenCall, report: Report) -> None:
        """Puts the outcome into the inbox; returns when it is durable there."""

    def paused(self, call: OpenCall) -> bool:
        """Whether no call of its tool may be begun now."""

    def turn(self, call: OpenCall) -> AbstractAsyncContextManager[None]:
        """A place among those that may run the call's tool now."""

    async def wait(self, call: OpenCall, seconds: float) -> None:
        """At most so long; less when something about the call changed."""


class Attempting:
    """Of one call. `tool` None: no tool of that name is here, so nothing is sent or probed."""

    def __init__(self, call: OpenCall, tool: Tool | None, desk: Desk, *, grace_s: float, output_bytes_max: int) -> None:
        self._call = call
        self._tool = tool
        self._desk = desk
        self._clock = desk.clock
        self._grace_us = round(grace_s * _US)
        self._output_bytes_max = output_bytes_max
        self._now = TwoClocks(self._clock)
        self._looked_us = self._now.earliest_us()
        self._won: int | None = None
        self._sends = self._probes = 0
        self._absent = False
        self._unmet = ""
        self._tried: list[str] = []

    async def settle(self) -> None:
        """Returns when nothing is left to be done. Raises what the desk raises; what was tried is then forgotten, and
        whoever comes next learns it from the ledger."""
        while self._call.open and (self._won is not None or not self._call.left):
            self._looked_us = (
                self._now.earliest_us()
            )  # before: whoever is frozen behind the look has not seen what came
            row = await self._desk.row(self._call)
            if not await self._take(row):
                return

    def _known(self, *, barred: bool = False) -> Known:
        return Known(
            latest_us=self._now.latest_us(),
            earliest_us=self._looked_us,
            grace_us=self._grace_us,
            has_probe=self._tool is not None and self._tool.probe is not None,
            paused=self._desk.paused(self._call),
            barred=barred,
            cancelled=self._call.cancelled,
            won=self._won,
            sends=self._sends,
            has_tool=self._tool is not None,
            probes=self._probes,
            absent=self._absent,
        )

    async def _take(self, row: Row) -> bool:
        """The next step; False when the call needs nobody any more."""
        step = self._next(row)
        if step.do not in (Do.BID, Do.RUN):
            return await self._other(step, row)
        async with self._desk.turn(self._call):
            step = self._next(row)  # it may have waited for its turn
            if step.do in (Do.BID, Do.RUN):
                why = await self._precondition(step)
                if why:
                    return await self._hold_back(row, why)
                step = self._next(row)
            if step.do is Do.BID and not self._call.left:
                row = await self._bid(step)
                step = self._next(row)
            if step.do is Do.RUN and (self._won == step.slot or not self._call.left):
                return await self._run(step)
        return True

    def _next(self, row: Row) -> Step:
        return next_step(self._call.intent, row, self._known())

    async def _hold_back(self, row: Row, why: str) -> bool:
        """The precondition is not met. What nobody has sent is never sent; of what somebody may have sent that says
        nothing, so it is looked at again some times, and then left to time."""
        step = next_step(self._call.intent, row, self._known(barred=True))
        if step.do is Do.EXPIRE:
            self._unmet = why
            return await self._other(step, row)
        self._won, self._sends = None, self._sends + 1
        self._tried.append(f"not sent again: {why}")
        await self._desk.wait(self._call, SEND_AGAIN_S * 2 ** (self._sends - 1))
        return True

    async def _other(self, step: Step, row: Row) -> bool:
        match step.do:
            case Do.NOTHING:
                return False
            case Do.EXPIRE:
                await self._desk.enter(self._call, step.slot, Expired(dispatcher=self._desk.name, reason=self._why()))
                return True
            case Do.PROBE:
                return await self._probe(step)
            case Do.WAIT:
                if self._call.left:  # it is held back
                    return await self._let_go()
                left_s = (step.until_us - self._now.earliest_us()) / _US
                await self._desk.wait(self._call, max(0.0, left_s))
                return True
            case _ if not await self._desk.is_open(self._call):  # it has a result, and what led to that was trimmed
                return await self._let_go()
            case Do.REPORT_EXPIRED:
                said = f"{NEVER}: {self._unmet}" if self._unmet and self._desk.holds(row, step.slot) else NEVER
                return await self._end(step.slot, Ran(ResultStatus.EXPIRED, said), Settled.EXPIRED)
            case _:
                tried = ("; ".join(self._tried) or "an attempt without an outcome")[:TEXT_FIELD_CHARS_MAX]
                return await self._end(step.slot, Ran(ResultStatus.UNKNOWN, tried), Settled.PERSON)

    def _why(self) -> str:
        if self._call.cancelled:
            return "cancelled"
        if self._unmet:
            return self._unmet[:TEXT_FIELD_CHARS_MAX]
        return "; ".join(self._tried)[:TEXT_FIELD_CHARS_MAX] or "nobody tried before its deadline"

    async def _bid(self, step: Step) -> Row:
        """Winning is being the first holder of the slot in the log: an acknowledgement lets two act [X01, X02]."""
        not_after = self._call.intent.not_after
        assert not_after is not None
        not_after = min(not_after, self._now.latest_us() + round(START_WITHIN_S * _US))
        row = await self._desk.enter(self._call, step.slot, Attempt(dispatcher=self._desk.name, not_after=not_after))
        if self._desk.holds(row, step.slot) and len(row.slots) == step.slot:
            self._won = step.slot
        return row

    async def _run(self, step: Step) -> bool:
        again = self._won != step.slot
        if again and self._sends:
            await self._desk.wait(self._call, SEND_AGAIN_S * 2 ** (self._sends - 1))
        is_open = await self._desk.is_open(self._call)  # [K03]
        if not is_open or (self._call.cancelled and not self._rests_on_its_key):
            return await self._let_go()
        readonly = self._call.intent.effect is Effect.READONLY
        self._won, self._sends = None, self._sends + (1 if again and not readonly else 0)
        ran = await self._send(step)
        if ran.pending_s is not None and not readonly:
            return await self._leave_pending(step, ran.pending_s)
        if ran.status is ResultStatus.EXPIRED:
            self._won = None if again else step.slot  # nothing was started
            self._tried.append("not started: its deadline had passed")
            return True
        if ran.known or readonly:
            return await self._end(step.slot, ran, Settled.REISSUED if again and not readonly else Settled.DIRECT)
        self._tried.append(f"sent: {ran.status.value}")
        return True

    async def _let_go(self) -> bool:
        """It is not to be sent here. Nobody who comes next can know that of a slot that was won, so it is said."""
        if self._call.open and self._call.left and self._won is not None:
            won, self._won = self._won, None
            if not self._rests_on_its_key:
                await self._desk.enter(self._call, won + 1, Expired(dispatcher=self._desk.name, reason=LEFT))
        return self._call.open

    @property
    def _rests_on_its_key(self) -> bool:
        """Others may have sent it already, so it cannot be expired: a cancel waits for what sending it again tells."""
        return self._call.intent.effect is Effect.IDEMPOTENT

    async def _precondition(self, step: Step) -> str:
        """Why the call must not be sent now, "" when it may be."""
        tool, desk = self._tool, self._desk
        if tool is None or tool.precondition is None:
            return ""
        context = self._context(step._replace(until_us=self._call.intent.not_after or 0))
        return await unmet(tool, context, await desk.arguments(self._call), lambda s: desk.wait(self._call, s))

    async def _send(self, step: Step) -> Ran:
        """The one place where a tool is set going; the deadline is looked at last."""
        tool = self._tool
        assert tool is not None
        return await run_tool(
            timely(tool, step.until_us, self._now.latest_us),
            self._context(step),
            await self._desk.arguments(self._call),
            clock=self._clock,
            output_bytes_max=self._output_bytes_max,
        )

    async def _probe(self, step: Step) -> bool:
        if self._probes:
            await self._desk.wait(self._call, PROBE_AGAIN_S)
        self._probes += 1
        assert self._tool is not None
        arguments = await self._desk.arguments(self._call)
        probed = await run_probe(self._tool, self._context(step), arguments, output_bytes_max=self._output_bytes_max)
        if probed.answer is ProbeAnswer.HAPPENED:
            return await self._end(step.slot, Ran(ResultStatus.OK, probed.output), Settled.PROBED)
        self._absent = probed.answer is ProbeAnswer.ABSENT
        self._tried.append(f"probed: {probed.answer.value} {probed.output}".rstrip())
        return True

    async def _leave_pending(self, step: Step, within_s: float) -> bool:
        """The tool answers by itself. Nobody looks into the call before the time that it gave."""
        until_us = self._now.latest_us() + round(within_s * _US)
        await self._desk.enter(self._call, step.slot, Pending(dispatcher=self._desk.name, until=until_us))
        self._tried.append(f"pending for {within_s:g} s")
        return True

    def _context(self, step: Step) -> CallContext:
        intent = self._call.intent
        return CallContext(
            trajectory_id=self._call.trajectory_id,
            call_id=intent.call_id,
            idempotency_key=intent.idempotency_key,
            epoch=self._call.epoch,
            attempt=max(1, step.slot + self._sends),
            deadline_us=step.until_us,
        )

    async def _end(self, slot: int, ran: Ran, settled: Settled) -> bool:
        """Outcome to the inbox, then Done: in this order, so that Done means that nothing is to be sent again."""
        await self._desk.report(self._call, Report(slot, ran, settled))
        if slot > 0:
            await self._desk.enter(self._call, slot, Done(dispatcher=self._desk.name, status=ran.status))
        return False
