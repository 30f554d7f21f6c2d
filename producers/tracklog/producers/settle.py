"""Settling: what becomes of a call that may have happened and has no outcome (DESIGN §8, rules 7 and 11).

    class        ways, in order
    readonly     run again
    local        run again
    idempotent   re-issue under the recorded key while it surely lives, else probe, else ask a person
    probe        wait, probe, else ask a person
    opaque       wait, ask a person

*Wait* is until an effect has landed or never will: `not_after` of the intent and `grace_s`; for an idempotent call
also until its key is surely forgotten (append time, `key_ttl`, `grace_s`). The claim is the arbiter: whoever
settles owns the trajectory, and the result of anyone else is not accepted. The class that counts is the recorded one.

`grace_s` must exceed the longest pause of a process, the tool's time-out and the difference of clocks together.
A process that is frozen for longer, between its last look at the deadline and the send, is beyond what anyone
but the tool can see: it is given deadline, epoch and attempt with every call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final

from tracklog.infra.clock import Clock, TwoClocks
from tracklog.producers.pen import Pen
from tracklog.producers.precondition import unmet
from tracklog.producers.tool_run import Ran, run_probe, run_tool, timely
from tracklog.producers.tools import CallContext, ProbeAnswer, Tool, ToolSet
from tracklog.schemas import events as ev
from tracklog.schemas.errors import InvalidTool, PersonNeeded, StillInDoubt
from tracklog.schemas.limits import TEXT_FIELD_CHARS_MAX
from tracklog.schemas.values import Effect, ResultStatus, Settled

__all__ = ["WAYS", "Outcome", "Settling", "Standing", "Timing", "Way", "check_settles", "due_us"]

REISSUES_MAX: Final = 3
"""Sends under one key by one owner, before it leaves the call to time."""
PROBES_MAX: Final = 3
WAIT_STEP_S: Final = 0.25
"""Between two looks at the clock, which may be set ahead or back meanwhile."""
A_PERSON: Final = "operator"
_US: Final = 1_000_000


class Way(StrEnum):
    RERUN = "run again"
    REISSUE = "re-issue under its key"
    PROBE = "probe"
    ASK = "ask a person"


WAYS: Final[Mapping[Effect, tuple[Way, ...]]] = {
    Effect.READONLY: (Way.RERUN,),
    Effect.LOCAL: (Way.RERUN,),
    Effect.IDEMPOTENT: (Way.REISSUE, Way.PROBE, Way.ASK),
    Effect.PROBE: (Way.PROBE, Way.ASK),
    Effect.OPAQUE: (Way.ASK,),
}


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds. `start_within_s`: from the intent to the send, `dispatch_within_s` where a dispatcher sends, which may
    be paused. `settle_wait_s`: the longest wait until an outcome can be known, `receive_wait_s` the longest for a
    message, `outcome_wait_s` the longest for what a dispatcher says."""

    start_within_s: float = 30.0
    grace_s: float = 120.0
    settle_wait_s: float = 900.0
    receive_wait_s: float = 30.0
    dispatch_within_s: float = 3600.0
    outcome_wait_s: float = 30.0


def check_settles(tool: Tool, grace_s: float, setting: str = "grace_s") -> None:
    """Raises InvalidTool for a tool whose calls whoever waits for this grace cannot settle. `setting`: its name."""
    if tool.effect is not Effect.READONLY and tool.timeout_s >= grace_s:
        raise InvalidTool(
            f"tool {tool.name!r} may take {tool.timeout_s:g} s, the grace is {grace_s:g} s",
            hint=f"an effect that may land after the grace cannot be settled: raise {setting} above the time-out",
        )
    if tool.effect is Effect.IDEMPOTENT and tool.key_ttl_s is not None and tool.key_ttl_s <= grace_s:
        raise InvalidTool(
            f"tool {tool.name!r} remembers keys for {tool.key_ttl_s:g} s, the grace is {grace_s:g} s",
            hint=f"no send would surely find its key alive: declare it probe or opaque, or lower {setting}",
        )


@dataclass(slots=True)
class Standing:
    """An intended call. `appended_us`: when the log took the intent, at the earliest. `asked`: a person was."""

    intent: ev.ToolIntent
    arguments: str
    seq: int
    turn: int
    appended_us: int
    in_doubt: bool = False
    asked: bool = False
    attempts: int = 0
    tried: list[str] = field(default_factory=list)

    @property
    def key_ends_us(self) -> int | None:
        """When the tool may forget the key; None for a call that rests on none."""
        ttl_ms = self.intent.key_ttl_ms
        if self.intent.effect is not Effect.IDEMPOTENT or ttl_ms is None:
            return None
        return self.appended_us + ttl_ms * 1000


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a call, and how that came to be known."""

    ran: Ran
    settled: Settled


def due_us(call: Standing, grace_us: int) -> int:
    """From when on the effect is there or never will be."""
    ends = (call.intent.not_after or 0, call.key_ends_us or 0)
    return max(ends) + grace_us


class Settling:
    """Finds out what became of calls, for the owner of one trajectory."""

    def __init__(
        self,
        pen: Pen,
        trajectory_id: str,
        tools: ToolSet,
        *,
        clock: Clock,
        timing: Timing,
        output_bytes_max: int,
        workspace: Path | None = None,
    ) -> None:
        self._pen = pen
        self._trajectory_id = trajectory_id
        self._tools = tools
        self._clock = clock
        self._timing = timing
        self._grace_us = round(timing.grace_s * _US)
        self._output_bytes_max = output_bytes_max
        self._workspace = workspace
        self._now = TwoClocks(clock)

    def not_after(self, tool: Tool) -> int:
        """Until when a call that is intended now may be started."""
        window_s = self._timing.start_within_s
        if tool.effect is Effect.IDEMPOTENT and tool.key_ttl_s is not None:
            window_s = min(window_s, tool.key_ttl_s - self._timing.grace_s)
        return self._now.latest_us() + round(window_s * _US)

    def dispatch_not_after(self) -> int:
        """Until when a dispatcher may begin to try a call that is intended now."""
        return self._now.latest_us() + round(self._timing.dispatch_within_s * _US)

    def check(self, tool: Tool) -> None:
        """Raises InvalidTool for a tool that these bounds cannot settle."""
        check_settles(tool, self._timing.grace_s)

    async def first(self, tool: Tool, call: Standing) -> Outcome:
        """Performs a call whose intent was read back as accepted. Raises as `settle` does when it ends unknown."""
        why = await self._unmet(tool, call)
        if why:
            return Outcome(_not_made(why), Settled.EXPIRED)
        ran = await self._send(tool, call, call.intent.not_after or 0)
        if ran.status is ResultStatus.EXPIRED:
            return Outcome(ran, Settled.EXPIRED)
        if ran.known or tool.effect in (Effect.READONLY, Effect.LOCAL):
            return Outcome(ran, Settled.DIRECT)
        call.tried.append(f"sent: {ran.status.value}")
        return await self.settle(call)

    async def retry(self, call: Standing) -> Outcome:
        """Performs a call that a person wants done again, whose second intent was read back as accepted."""
        return await self.first(self._tool_of(call), call)

    async def again(self, call: Standing) -> Ran:
        """Performs a local call that is finished once more: its files were taken back. Raises InvalidTool."""
        tool = self._tool_of(call)
        return await self._send(tool, call, self.not_after(tool))

    async def settle(self, call: Standing) -> Outcome:
        """Goes through the ways of the call's class. Raises PersonNeeded, StillInDoubt, InvalidTool."""
        if call.asked:
            raise self._person_needed(call)
        for way in WAYS[call.intent.effect]:
            outcome = await self._go(way, call)
            if outcome is not None:
                return outcome
        raise self._person_needed(call)

    async def _go(self, way: Way, call: Standing) -> Outcome | None:
        if way is Way.RERUN:
            return await self._rerun(call)
        if way is Way.REISSUE:
            return await self._reissue(call)
        if way is Way.PROBE:
            return await self._probe(call)
        await self._ask(call)
        return None

    async def _rerun(self, call: Standing) -> Outcome:
        tool = self._tool_of(call)
        why = await self._unmet(tool, call)
        if why:
            return Outcome(_not_made(why), Settled.EXPIRED)
        ran = await self._send(tool, call, self.not_after(tool))
        return Outcome(ran, Settled.REISSUED)

    async def _reissue(self, call: Standing) -> Outcome | None:
        """Sends again while the key surely lives; each send looks at the time last [X17-X19].

        What forbids another send says nothing of the one before it, so the call stays in doubt then.
        """
        tool, ends_us = self._tool_of(call), call.key_ends_us
        assert ends_us is not None
        for _ in range(REISSUES_MAX):
            why = await self._unmet(tool, call)
            if why:
                call.tried.append(f"not sent again: {why}")
                return None
            deadline_us = min(
                ends_us - self._grace_us, self._now.latest_us() + round(self._timing.start_within_s * _US)
            )
            ran = await self._send(tool, call, deadline_us)
            if ran.status is ResultStatus.EXPIRED:
                call.tried.append("its key may be forgotten: not sent again")
                return None
            if ran.known:
                return Outcome(ran, Settled.REISSUED)
            call.tried.append(f"sent again: {ran.status.value}")
        return None

    async def _probe(self, call: Standing) -> Outcome | None:
        if call.intent.effect is Effect.IDEMPOTENT and not self._has_probe(call):
            return None
        tool = self._tool_of(call)
        await self._wait(call)
        for _ in range(PROBES_MAX):
            context = self._context(call, call.intent.not_after or 0)
            probed = await run_probe(tool, context, call.arguments, output_bytes_max=self._output_bytes_max)
            if probed.answer is ProbeAnswer.HAPPENED:
                return Outcome(Ran(ResultStatus.OK, probed.output), Settled.PROBED)
            if probed.answer is ProbeAnswer.ABSENT:
                return Outcome(Ran(ResultStatus.EXPIRED, "the call did not happen, and never will"), Settled.EXPIRED)
            call.tried.append(f"probed: unknown {probed.output}".rstrip())
        return None

    async def _ask(self, call: Standing) -> None:
        await self._wait(call)
        tried = "; ".join(call.tried) or "an intent without an outcome"
        body = ev.Escalated(call_id=call.intent.call_id, tried=tried[:TEXT_FIELD_CHARS_MAX], asked=A_PERSON)
        seq = await self._pen.append(body, turn=call.turn, cause=call.seq)
        await self._pen.confirm(seq)
        call.asked = True

    async def _wait(self, call: Standing) -> None:
        """Until the effect is there or never will be. Raises StillInDoubt when that is too far away."""
        until_us = due_us(call, self._grace_us)
        left_us = until_us - self._now.earliest_us()
        if left_us > self._timing.settle_wait_s * _US:
            await self._leave(call, until_us)
        while (left_us := until_us - self._now.earliest_us()) > 0:  # noqa: ASYNC110 - a clock announces nothing
            await asyncio.sleep(min(left_us / _US, WAIT_STEP_S))

    async def _leave(self, call: Standing, until_us: int) -> None:
        if not call.in_doubt:
            tried = "; ".join(call.tried) or "an intent without an outcome"
            body = ev.InDoubt(call_id=call.intent.call_id, tried=tried[:TEXT_FIELD_CHARS_MAX])
            await self._pen.confirm(await self._pen.append(body, turn=call.turn, cause=call.seq))
            call.in_doubt = True
        raise StillInDoubt(
            f"call {call.intent.call_id!r} of tool {call.intent.tool!r} in trajectory {self._trajectory_id!r} may "
            f"have happened; that can be settled from {until_us} on (microseconds since 1970 UTC)",
            hint="open the session again then, or raise settle_wait_s to wait for it",
        )

    async def _unmet(self, tool: Tool, call: Standing) -> str:
        return await unmet(tool, self._context(call, call.intent.not_after or 0), call.arguments)

    async def _send(self, tool: Tool, call: Standing, deadline_us: int) -> Ran:
        """The one place where a tool is set going; the deadline is looked at last, in the task that sends."""
        call.attempts += 1
        return await run_tool(
            timely(tool, deadline_us, self._now.latest_us),
            self._context(call, deadline_us),
            call.arguments,
            clock=self._clock,
            output_bytes_max=self._output_bytes_max,
        )

    def _context(self, call: Standing, deadline_us: int) -> CallContext:
        return CallContext(
            trajectory_id=self._trajectory_id,
            call_id=call.intent.call_id,
            idempotency_key=call.intent.idempotency_key,
            epoch=self._pen.epoch,
            attempt=call.attempts,
            deadline_us=deadline_us,
            workspace=self._workspace,
        )

    def _has_probe(self, call: Standing) -> bool:
        tool = self._tools.get(call.intent.tool)
        return tool is not None and tool.probe is not None

    def as_intended(self, intent: ev.ToolIntent) -> Tool | None:
        """The tool of a call; None for one that is gone or another one now."""
        tool = self._tools.get(intent.tool)
        return tool if tool is not None and tool.version == intent.tool_version else None

    def _tool_of(self, call: Standing) -> Tool:
        """The tool as it was intended. Raises InvalidTool for one that is gone or another one now."""
        tool = self.as_intended(call.intent)
        if tool is not None:
            return tool
        gone = self._tools.get(call.intent.tool) is None
        changed = "is not among the tools any more" if gone else "has another schema or effect now"
        raise InvalidTool(
            f"call {call.intent.call_id!r} is to be settled or done again, and tool {call.intent.tool!r} {changed}",
            hint="open the session with the tool as it was",
        )

    def _person_needed(self, call: Standing) -> PersonNeeded:
        return person_needed(self._trajectory_id, call.intent.call_id, call.intent.tool)


def _not_made(why: str) -> Ran:
    return Ran(ResultStatus.EXPIRED, f"the call was not made: {why}")


def person_needed(trajectory_id: str, call_id: str, tool: str) -> PersonNeeded:
    return PersonNeeded(
        f"call {call_id!r} of tool {tool!r} in trajectory {trajectory_id!r} may have happened, and nothing but a "
        "person can find out",
        hint=f"look whether it happened, then: tracklog escalations settle {trajectory_id} {call_id} ...",
    )
