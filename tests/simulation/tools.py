"""The tools of the simulation: what they do to the world, and the ways in which a call of them goes wrong.

A send that is on its way lands within LANDS_S of the last look at its deadline, or never: what DESIGN §8 assumes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from tests.simulation.loop import PROCESS, SimLoop
from tests.simulation.truth import Call, Truth, Violation
from tracklog.producers.tools import CallContext, ProbeAnswer, Probed, Tool, ToolSet
from tracklog.schemas.errors import ToolOutcomeUnknown
from tracklog.schemas.values import Effect

GRACE_S: Final = 30.0
LANDS_S: Final = 22.0
"""With the difference of two clocks (twice SKEW_S_MAX) less than the grace."""
SKEW_S_MAX: Final = 3.0
KEY_TTL_S: Final = 100.0
TIMEOUT_S: Final = 8.0


class World:
    """What the tools work on."""

    def __init__(self, loop: SimLoop, truth: Truth, faults: Mapping[int, str]) -> None:
        self._loop, self._truth, self._faults = loop, truth, faults
        self._keys: dict[str, int | None] = {}
        self._sends = 0
        self.told: Any = lambda _: None

    def tools(self) -> ToolSet:
        def made(name: str, effect: Effect, **options: Any) -> Tool:
            schema = {"type": "object", "properties": {}}
            return Tool(name, name, schema, self.send, effect, TIMEOUT_S, run="dispatch", check=_fits, **options)

        return ToolSet.of(
            made("readonly", Effect.READONLY),
            made("idempotent", Effect.IDEMPOTENT, key_ttl_s=KEY_TTL_S),
            made("idempotent_probed", Effect.IDEMPOTENT, key_ttl_s=KEY_TTL_S, probe=self.probe),
            made("probe", Effect.PROBE, probe=self.probe),
            made("opaque", Effect.OPAQUE),
        )

    async def send(self, context: CallContext, arguments: Mapping[str, Any]) -> str:
        """Nothing is awaited before it is on its way, as the deadline was looked at just now."""
        loop = self._loop
        self._sends += 1
        fault = self._faults.get(self._sends)
        try:
            call = self._truth.sent(context.call_id, context.attempt)
        except Violation as found:  # whoever runs the tool would take it for the tool's own error
            loop.call_exception_handler({"message": "", "exception": found})
            raise
        self.told(f"{PROCESS.get().name} sends {call.name} as attempt {context.attempt}: {fault or 'well'}")
        lands_s = loop.chance.uniform(TIMEOUT_S, LANDS_S) if fault == "late" else loop.chance.uniform(0.0, 1.0)
        answer: asyncio.Future[str] = loop.create_future()
        process = PROCESS.get()
        if fault == "refused" and not call.under_way and not call.effects and not call.row.done:
            call.refuses = True
        call.under_way += 1

        def land() -> None:
            call.under_way -= 1
            said = self._land(call, context)
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

    def _land(self, call: Call, context: CallContext) -> str:
        if call.refuses:
            return "refused"
        if call.intent.effect is Effect.IDEMPOTENT:
            key = context.idempotency_key
            forgets_us = self._keys.get(key)
            if forgets_us is not None and self._loop.now_us < forgets_us:
                return "done before"
            surely_us = call.row.slots[0].appended_us + round(KEY_TTL_S * 1_000_000)
            kept_us = self._loop.now_us + round(KEY_TTL_S * 1_000_000)
            self._keys[key] = self._loop.chance.choice((surely_us, kept_us))
        self._truth.happened(call)
        return "done"

    async def probe(self, context: CallContext, arguments: Mapping[str, Any]) -> Probed:
        chance = self._loop.chance
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
