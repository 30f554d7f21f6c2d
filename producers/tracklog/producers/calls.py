"""The tool calls of a session: authorization, intent, effect, result (DESIGN §8, rule 11).

Authorized     the policy's ruling; a tool that is not there or arguments that do not fit are refused by it, and so is
               every call when a budget is used up. A held call waits for a person (`approvals.py`)
ToolIntent     appended and read back as accepted; only then, and before its deadline, the tool is called
ToolResult     what became of it, after it was settled when nobody knew
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tracklog.producers.checkpoints import Checkpoints
from tracklog.producers.cursor import Recorded, describe
from tracklog.producers.dispatched import Dispatched
from tracklog.producers.divergence import Divergence
from tracklog.producers.pen import Pen
from tracklog.producers.record import JSON, TEXT, Record
from tracklog.producers.repeats import Repeats
from tracklog.producers.rulings import Rulings, Word
from tracklog.producers.sandbox import Sandbox
from tracklog.producers.settle import Outcome, Settling, Standing
from tracklog.producers.setup import Setup
from tracklog.producers.spend import Tally
from tracklog.producers.tools import Tool
from tracklog.schemas import events as ev
from tracklog.schemas.codec import Event
from tracklog.schemas.errors import SessionMisused
from tracklog.schemas.values import Effect, Place, ResultStatus, Settled, ToolCall

__all__ = ["Calls", "Result", "result_body", "settling_of"]


@dataclass(frozen=True, slots=True)
class Result:
    """What became of a call. `message` goes into the next context."""

    call_id: str
    status: ResultStatus
    output: str
    said: Mapping[str, Any] | None = None
    """The message as a recording has it, where that is another one."""

    @property
    def message(self) -> Mapping[str, Any]:
        if self.said is not None:
            return self.said
        return {"role": "tool", "tool_call_id": self.call_id, "content": self.output}


class Calls:
    """Of one session: those proposed by the model so far, and how to make them."""

    def __init__(
        self,
        setup: Setup,
        record: Record,
        settling: Settling,
        sandbox: Sandbox | None = None,
        checkpoints: Checkpoints | None = None,
    ) -> None:
        self._setup = setup
        self._record = record
        self._settling = settling
        self._sandbox = sandbox
        self.repeats: Final = Repeats(setup.repeats_max, record.cursor.let_go_on)
        self._proposed: dict[str, ToolCall] = {}
        self.dispatched: Final = Dispatched(record, setup.timing)
        self.tally: Final = Tally(record.cursor.recount, setup.clock)
        self.rulings: Final = Rulings(setup, record, self.tally, sandbox)
        self._earlier: set[str] = set()
        self._checkpoints = checkpoints
        for tool in setup.tools:
            settling.check(tool)

    def propose(self, calls: Iterable[ToolCall], seq: int) -> None:
        """Takes in the calls of the reply at this seq. Raises Stuck when it is the same call once too often."""
        proposed = tuple(calls)
        self._proposed.update((call.call_id, call) for call in proposed)
        self.repeats.take(seq, proposed)
        if self.repeats.too_many and self._record.cursor.done:
            self._record.check_live("the same call again")
            raise self.repeats.stuck()

    def recall_open(self, events: Iterable[Event]) -> None:
        """Takes in what of a record is open side by side: dispatched calls, requests for approval."""
        self.dispatched.recall(events)
        self.rulings.approvals.recall(events)

    def recall(self, call_ids: Iterable[str]) -> None:
        """Takes in the ids of replies before a checkpoint, whose calls were made then."""
        self._earlier.update(call_ids)

    def unique(self, calls: Iterable[ToolCall]) -> tuple[ToolCall, ...]:
        """The calls of a new reply under ids that no earlier call of the trajectory has."""
        here, out = set[str](), []
        for call in calls:
            call_id, number = call.call_id, 1
            while any(call_id in taken for taken in (here, self._earlier, self._proposed)):
                number += 1
                call_id = f"{call.call_id}~{number}"
            here.add(call_id)
            out.append(call.model_copy(update={"call_id": call_id}))
        return tuple(out)

    async def authorize(self, call: ToolCall) -> bool:
        """Whether the call may be made; the ruling is recorded once. Raises ApprovalNeeded for a held one."""
        return (await self._word(call)).instead is None

    async def make(self, call: ToolCall) -> tuple[Result, int]:
        """(what became of the call, seq of its result)."""
        word = await self._word(call)
        if word.instead is not None:
            return await self._unmade(call, word.instead)
        call = word.call
        asked = f"call {call.call_id!r} of {call.tool} with {call.arguments!r}"
        intent = await self._record.of_call(ev.ToolIntent, call.call_id, asked)
        if intent is None:
            if word.recorded:
                return await self._intend_recorded(call, asked)
            return await self._live(call, asked, word)
        same = hashlib.sha256(call.arguments.encode("utf-8", "replace")).digest() == intent.body.arguments.hash
        if intent.body.tool != call.tool or not same:
            raise self._record.cursor.broken(Divergence(intent.turn, intent.seq, describe(intent.body), asked))
        result = await self._record.of_call(ev.ToolResult, call.call_id, f"the result of {asked}")
        given = self._given(call) if intent.seq >= 0 and intent.body.place is Place.RECORDED else None
        if result is None and given is not None:
            return await self._as_recorded(call, given, asked)
        if result is None and intent.body.place is Place.DISPATCH:
            return _taken(*await self.dispatched.result(call))
        if result is None:
            self._record.check_live(f"the result of {asked}")
            raise SessionMisused(f"call {call.call_id!r} was intended and not settled", hint="open the session again")
        return _given(result)

    async def _word(self, call: ToolCall) -> Word:
        self._check_proposed(call)
        return await self.rulings.on(call)

    def _check_proposed(self, call: ToolCall) -> None:
        """A call is made as the model proposed it: with its own arguments, nobody else's."""
        proposed = self._proposed.get(call.call_id)
        if proposed == call:
            return
        asked = f"call {call.call_id!r} of {call.tool} with {call.arguments!r}"
        if proposed is None:
            recorded = f"no call {call.call_id!r} in any reply"
        else:
            recorded = f"call {call.call_id!r} of {proposed.tool} with {proposed.arguments!r}, as the model proposed it"
        expected = self._record.cursor.next_open()
        if expected is not None:
            raise self._record.cursor.broken(Divergence(expected.turn, expected.seq, recorded, asked))
        raise SessionMisused(f"asked for is {asked}; there is {recorded}", hint="pass on a call of the reply as it is")

    async def _unmade(self, call: ToolCall, outcome: Outcome) -> tuple[Result, int]:
        asked = f"the result of call {call.call_id!r}, which is not made"
        found = await self._record.of_call(ev.ToolResult, call.call_id, asked)
        if found is not None:
            return _given(found)
        self._record.check_live(asked)
        return await self._close(call, outcome, 0)

    async def _live(self, call: ToolCall, asked: str, word: Word) -> tuple[Result, int]:
        """Intent, read-back, effect, result."""
        tool = self._setup.tools.get(call.tool)
        if tool is None:
            raise SessionMisused(f"tool {call.tool!r} is gone since its call was allowed", hint="open it with the tool")
        self._record.check_live(asked)
        points = self._checkpoints
        if tool.dispatched(self._setup.dispatches):
            if points is not None and tool.effect is Effect.OPAQUE:
                await points.take()
            await self._record.write(await self._intent(call, tool, word), ext=self.dispatched.ext(call.call_id))
            return _taken(*await self.dispatched.result(call))
        if points is None:
            _, made = await self._perform(call, tool, word)
            return made
        async with points.around(tool.effect):
            outcome, made = await self._perform(call, tool, word)
        if tool.effect is Effect.LOCAL and not outcome.ran.known:
            await points.take()
        return made

    async def _perform(self, call: ToolCall, tool: Tool, word: Word) -> tuple[Outcome, tuple[Result, int]]:
        intended_us = self._setup.clock.now_us()
        intent = await self._intent(call, tool, word)
        seq = await self._record.write(intent)
        await self._record.pen.confirm(seq)
        standing = Standing(intent, call.arguments, seq, self._record.turn, appended_us=intended_us)
        outcome = await self._settling.first(tool, standing)
        return outcome, await self._close(call, outcome, standing.attempts)

    async def _intend_recorded(self, call: ToolCall, asked: str) -> tuple[Result, int]:
        """A call of a fork that is answered as one of its origin was: nobody's to run."""
        tool, given = self._setup.tools.get(call.tool), self._given(call)
        assert tool is not None
        if given is None:
            raise SessionMisused(f"the result for call {call.call_id!r} is gone from the origin")
        self._record.check_live(asked)
        body = ev.ToolIntent(
            call_id=call.call_id,
            tool=tool.name,
            tool_version=tool.version,
            arguments=await self._record.body(call.arguments, JSON),
            effect=tool.effect,
            place=Place.RECORDED,
        )
        await self._record.write(body)
        return await self._as_recorded(call, given, asked)

    async def _as_recorded(self, call: ToolCall, given: ev.ToolResult, asked: str) -> tuple[Result, int]:
        self._record.check_live(f"the result of {asked}")
        body = ev.ToolResult(
            call_id=call.call_id, status=given.status, output=given.output, settled=Settled.RECORDED, attempts=0
        )
        return Result(call.call_id, body.status, body.output.text), await self._record.write(body)

    def _given(self, call: ToolCall) -> ev.ToolResult | None:
        return self._sandbox.take(call) if self._sandbox is not None else None

    async def _intent(self, call: ToolCall, tool: Tool, word: Word) -> ev.ToolIntent:
        dispatched = tool.dispatched(self._setup.dispatches)
        return ev.ToolIntent(
            call_id=call.call_id,
            tool=tool.name,
            tool_version=tool.version,
            arguments=await self._record.body(call.arguments, JSON),
            effect=tool.effect,
            idempotency_key=self._setup.entropy.nonce().hex(),
            key_ttl_ms=_ttl_ms(tool),
            not_after=self._settling.dispatch_not_after() if dispatched else self._settling.not_after(tool),
            place=Place.DISPATCH if dispatched else Place.INLINE,
            request_hash=word.request_hash,
        )

    async def _close(self, call: ToolCall, outcome: Outcome, attempts: int) -> tuple[Result, int]:
        body = await result_body(self._record, call.call_id, outcome, attempts)
        seq = await self._record.write(body)
        return Result(call.call_id, body.status, body.output.text), seq


def settling_of(setup: Setup, trajectory_id: str, pen: Pen) -> Settling:
    """How the calls of this session are settled."""
    return Settling(
        pen,
        trajectory_id,
        setup.tools,
        clock=setup.clock,
        timing=setup.timing,
        output_bytes_max=setup.output_bytes_max,
        workspace=setup.workspace,
    )


async def result_body(record: Record, call_id: str, outcome: Outcome, attempts: int) -> ev.ToolResult:
    """The event of an outcome."""
    ran = outcome.ran
    if ran.whole is None:
        output = await record.body(ran.output, TEXT)
    else:
        output = await record.delivered(ran.output, ran.whole, TEXT)
    return ev.ToolResult(
        call_id=call_id,
        status=ran.status,
        output=output,
        settled=outcome.settled,
        duration_ms=ran.duration_ms,
        attempts=attempts,
    )


def _given(found: Recorded[ev.ToolResult]) -> tuple[Result, int]:
    return _taken(found.seq, found.body)


def _taken(seq: int, body: ev.ToolResult) -> tuple[Result, int]:
    return Result(body.call_id, body.status, body.output.text), seq


def _ttl_ms(tool: Tool) -> int | None:
    """How long the tool remembers the key; rounded down, as no later time is sure."""
    if tool.effect is not Effect.IDEMPOTENT or tool.key_ttl_s is None:
        return None
    return int(tool.key_ttl_s * 1000)
