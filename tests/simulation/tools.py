"""The tools of the simulation: what they do to the world, and the ways in which a call of them goes wrong.

A send that is on its way lands within LANDS_S of the last look at its deadline, or never: what DESIGN §8 assumes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

from tests.simulation.loop import PROCESS, Process, SimLoop
from tests.simulation.scenario import CLASSES, WAYS
from tests.simulation.truth import Call, Truth, Violation
from tracklog.producers.tools import CallContext, ProbeAnswer, Probed, Tool, ToolSet
from tracklog.schemas.errors import ToolOutcomeUnknown, ToolPending
from tracklog.schemas.values import Effect, Place, ResultStatus

GRACE_S: Final = 30.0
LANDS_S: Final = 22.0
"""With the difference of two clocks (twice SKEW_S_MAX) less than the grace."""
SKEW_S_MAX: Final = 3.0
KEY_TTL_S: Final = 100.0
TIMEOUT_S: Final = 8.0
JOB_S: Final = 45.0
"""Within which a job says that it answers."""
EFFECTS: Final = {"idempotent_probed": Effect.IDEMPOTENT}


class World:
    """What the tools work on. `used` is told who uses a tool for what, `answers` of a job that has ended."""

    def __init__(self, loop: SimLoop, truth: Truth, faults: Mapping[int, str]) -> None:
        self._loop, self._truth, self._faults = loop, truth, faults
        self._keys: dict[str, int | None] = {}
        self._sends = 0
        self.told: Callable[[str], None] = lambda _: None
        self.used: Callable[[str, Process], object] = lambda _, __: None
        self.answers: Callable[[Call, ResultStatus, int], None] = lambda _, __, ___: None
        self.tools: Final = ToolSet.of(*(self._tool(kind, way) for kind in CLASSES for way in sorted(set(WAYS))))

    def _tool(self, kind: str, way: str) -> Tool:
        effect = EFFECTS.get(kind) or Effect(kind)
        return Tool(
            kind + way,
            kind,
            {"type": "object", "properties": {}},
            self._job if way == "_job" and effect is not Effect.READONLY else self.send,
            effect,
            TIMEOUT_S,
            key_ttl_s=KEY_TTL_S if effect is Effect.IDEMPOTENT else None,
            probe=self.probe if kind in ("probe", "idempotent_probed") else None,
            run="inline" if way == "_here" else "dispatch",
            check=_fits,
        )

    async def send(self, context: CallContext, arguments: Mapping[str, Any]) -> str:
        """Nothing is awaited before it is on its way, as the deadline was looked at just now."""
        loop, process = self._loop, PROCESS.get()
        call, fault, lands_s = self._begin(context)
        answer: asyncio.Future[str] = loop.create_future()

        def land() -> None:
            said = self._land(call, context, process)
            if fault != "answer lost":
                loop.later(loop.chance.uniform(0.0, 0.2), give, said, process=process)

        def give(said: str) -> None:
            if not answer.done():
                answer.set_result(said)

        if fault != "lost":
            loop.later(lands_s, land)
        if fault == "unknown":
            await asyncio.sleep(0.5)
            raise ToolOutcomeUnknown("the connection broke")
        said = await answer
        if said == "refused":
            raise ValueError("the tool refuses this call")
        return said

    async def _job(self, context: CallContext, arguments: Mapping[str, Any]) -> str:
        """It says at once that it will answer, and does, some time after its effect, or never."""
        loop, process = self._loop, PROCESS.get()
        call, fault, lands_s = self._begin(context)
        number = self._sends

        def land() -> None:
            status = ResultStatus.ERROR if self._land(call, context, process) == "refused" else ResultStatus.OK
            if fault != "answer lost":
                loop.later(loop.chance.choice((1.0, 60.0)) * loop.chance.random(), self.answers, call, status, number)

        if fault != "lost":
            loop.later(lands_s if fault == "late" else lands_s * 20, land)
        await asyncio.sleep(0.1)
        if fault == "unknown":
            raise ToolOutcomeUnknown("the connection broke")
        raise ToolPending("it has begun", within_s=JOB_S)

    def _begin(self, context: CallContext) -> tuple[Call, str | None, float]:
        """(the call, what goes wrong with this send, after how long it lands)."""
        loop, process = self._loop, PROCESS.get()
        self._sends += 1
        fault = self._faults.get(self._sends)
        try:
            call = self._truth.sent(context)
        except Violation as found:  # whoever runs the tool would take it for the tool's own error
            loop.call_exception_handler({"message": "", "exception": found})
            raise
        self.told(f"{process.name} sends {call.name} as attempt {context.attempt}: {fault or 'well'}")
        self.used("send", process)
        if fault == "refused" and not call.under_way and not call.effects and not call.row.done:
            call.refuses = True
        call.under_way += 1
        lands_s = loop.chance.uniform(TIMEOUT_S, LANDS_S) if fault == "late" else loop.chance.uniform(0.0, 1.0)
        return call, fault, lands_s

    def _land(self, call: Call, context: CallContext, process: Process) -> str:
        call.under_way -= 1
        if call.refuses:
            return "refused"
        if call.intent.effect is Effect.IDEMPOTENT:
            key = context.idempotency_key
            forgets_us = self._keys.get(key)
            if forgets_us is not None and self._loop.now_us < forgets_us:
                return "done before"
            surely_us = self._first_us(call) + round(KEY_TTL_S * 1_000_000)
            kept_us = self._loop.now_us + round(KEY_TTL_S * 1_000_000)
            self._keys[key] = self._loop.chance.choice((surely_us, kept_us))
        self._truth.happened(call)
        self.used("effect", process)
        return "done"

    @staticmethod
    def _first_us(call: Call) -> int:
        """From when on the key lives: the first attempt of a dispatched call, else the intent."""
        return call.row.slots[0].appended_us if call.intent.place is Place.DISPATCH else call.appended_us

    async def probe(self, context: CallContext, arguments: Mapping[str, Any]) -> Probed:
        chance = self._loop.chance
        self.used("probe", PROCESS.get())
        await asyncio.sleep(chance.uniform(0.0, 0.5))
        call = self._truth.calls[context.call_id]
        if chance.random() < 0.1:
            raise ConnectionError("the probe found nobody")
        answer = ProbeAnswer.HAPPENED if call.effects else ProbeAnswer.ABSENT
        self.told(f"{PROCESS.get().name} probes {call.name}: {answer.value}")
        await asyncio.sleep(chance.uniform(0.0, 0.5))
        return Probed(answer, "done" if call.effects else "")


def _fits(arguments: Mapping[str, Any]) -> str:
    return ""
