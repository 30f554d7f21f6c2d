"""Agents to run, to crash at any point and to resume: a scripted model, a tool of each class, a log that dies."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from tests.support.ledger import effects_of, make_effect
from tests.support.memory_logs import make_topics
from tests.support.writing import read_accepted
from tracklog.infra.blobs import BlobStore, open_blobs
from tracklog.infra.clock import Clock, ManualClock, SystemClock, SystemEntropy
from tracklog.infra.log.memory import Fault, Faults, MemoryLog
from tracklog.infra.log.memory_store import MemoryStore
from tracklog.producers.models import ModelAnswer, ModelRequest, calls_of
from tracklog.producers.opening import opened
from tracklog.producers.producer import EventProducer
from tracklog.producers.session import Session
from tracklog.producers.settle import Timing
from tracklog.producers.setup import Setup
from tracklog.producers.tools import CallContext, ProbeAnswer, Probed, ToolSet, tool
from tracklog.producers.turn import Agent, run_turns
from tracklog.schemas.codec import Event
from tracklog.schemas.events import EventBody
from tracklog.schemas.topics import Topics

TRAJECTORY = "trip-1"
TASK = "book a trip"
TIMING = Timing(start_within_s=30.0, grace_s=70.0, settle_wait_s=1000.0)
KEY_TTL_S = 86_400.0
PAST_GRACE_S = 150.0


class Crash(BaseException):
    """The process is gone: nothing handles it, and nothing of the process reaches the log after it."""


def asks(*calls: tuple[str, str], arguments: str = '{"what":"it"}') -> ModelAnswer:
    """A reply that asks for calls: (call id, tool) each."""
    raw = [
        {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
        for call_id, name in calls
    ]
    message = {"role": "assistant", "content": None, "tool_calls": raw}
    return ModelAnswer(message=message, tool_calls=calls_of(message), stop_reason="tool_calls", served="scripted-1")


def says(text: str) -> ModelAnswer:
    return ModelAnswer(message={"role": "assistant", "content": text}, stop_reason="stop", served="scripted-1")


class ScriptedModel:
    """Answers in order, and counts how often it was asked for each answer."""

    name = "scripted"

    def __init__(self, *answers: ModelAnswer) -> None:
        self.answers = answers
        self.asked: Counter[int] = Counter()

    async def reply(self, request: ModelRequest, *, on_token: Callable[[str], None] | None = None) -> ModelAnswer:
        assert request.replies_before is not None
        self.asked[request.replies_before] += 1
        return self.answers[request.replies_before]


class World:
    """One log, one clock, one ledger; processes come and go."""

    def __init__(self, ledger_url: str, blobs: BlobStore) -> None:
        self.store = MemoryStore()
        self.clock = ManualClock()
        self.log_clock: Clock = self.clock
        self.ledger_url = ledger_url
        self.blobs = blobs
        self.die_at_append: int | None = None
        self.die_at_point: str | None = None
        self.dead = False
        self.died = asyncio.Event()
        self.appends = 0
        self.points: list[str] = []
        self.trouble: Faults | None = None
        self.ran: Counter[str] = Counter()
        self.from_checkpoint = False
        self.notes: tuple[str, ...] = ()
        make_topics(self.new_log(), "tracklog", 2)

    def new_log(self) -> MemoryLog:
        return MemoryLog(self.store, now_ms=lambda: self.log_clock.now_us() // 1000)

    @asynccontextmanager
    async def process(self) -> AsyncIterator[tuple[MemoryLog, EventProducer]]:
        """A new process over the same log."""
        self.dead, self.appends = False, 0
        log = self.new_log()
        log.faults = self._append
        async with EventProducer(log, topics=Topics(), clock=SystemClock(), entropy=SystemEntropy()) as producer:
            yield log, producer
        log.close()

    def _append(self, topic: str, key: bytes, value: bytes) -> Fault | None:
        if self.dead or self.appends == self.die_at_append:
            self.dead = True
            self.died.set()
            raise Crash
        self.appends += 1
        return self.trouble(topic, key, value) if self.trouble is not None else None

    def point(self, name: str) -> bool:
        """Called by tools around their effect. True when the process dies here."""
        self.points.append(name)
        if name == self.die_at_point:
            self.dead = True
        return self.dead

    def events(self) -> list[Event]:
        return read_accepted(self.new_log(), TRAJECTORY)

    def bodies(self, kind: type[EventBody]) -> list[Any]:
        return [event.body for event in self.events() if isinstance(event.body, kind)]

    def tools(self) -> ToolSet:
        """One of each class, named by it."""

        def effect(context: CallContext, key: str | None) -> str:
            self.ran[context.call_id] += 1
            if self.point("before the effect"):
                return ""
            receipt = make_effect(self.ledger_url, context.call_id, key)
            self.point("after the effect")
            return receipt

        def found(context: CallContext) -> Probed:
            if effects_of(self.ledger_url, context.call_id):
                return Probed(ProbeAnswer.HAPPENED, f"receipt for {context.call_id}")
            return Probed(ProbeAnswer.ABSENT)

        @tool(effect="readonly")
        def readonly(what: str, context: CallContext) -> str:
            self.ran[context.call_id] += 1
            self.point("before the effect")
            self.point("after the effect")
            return f"found {what}"

        @tool(effect="local")
        def local(what: str, context: CallContext) -> str:
            self.ran[context.call_id] += 1
            self.point("before the effect")
            self.point("after the effect")
            return f"wrote {what}"

        @tool(effect="idempotent", key_ttl_s=KEY_TTL_S)
        def idempotent(what: str, context: CallContext) -> str:
            return effect(context, context.idempotency_key)

        @tool(effect="probe", probe=found)
        def probe(what: str, context: CallContext) -> str:
            return effect(context, None)

        @tool(effect="opaque")
        def opaque(what: str, context: CallContext) -> str:
            return effect(context, None)

        return ToolSet.of(readonly, local, idempotent, probe, opaque)

    def setup(self, model: ScriptedModel | None, **changes: Any) -> Setup:
        setup = Setup(
            agent="traveller",
            task=TASK,
            blobs=self.blobs,
            clock=self.clock,
            model=model,
            tools=self.tools(),
            prompt="be kind",
            timing=TIMING,
        )
        return replace(setup, **changes)

    async def run(self, model: ScriptedModel, program: Program | None = None, **changes: Any) -> None:
        """The built-in agent, or a program, in a process of its own."""
        setup = self.setup(model, **changes)
        async with (
            self.process() as (log, producer),
            opened(producer, TRAJECTORY, log=log, setup=setup, from_checkpoint=self.from_checkpoint) as session,
        ):
            self.notes = session.notes
            await (program or built_in(setup))(session)

    async def crash(self, model: ScriptedModel, program: Program | None = None, **changes: Any) -> bool:
        """The same, to be killed on the way; False when it came to its end before."""
        return await self.until_dead(self.run(model, program, **changes))

    async def until_dead(self, work: Coroutine[Any, Any, None]) -> bool:
        """Does the work in a process that is killed on the way; False when it came to its end before."""
        self.died = asyncio.Event()
        running = asyncio.create_task(work)
        dying = asyncio.create_task(self.died.wait())
        await asyncio.wait({running, dying}, return_when=asyncio.FIRST_COMPLETED)
        for one in (dying, running):
            one.cancel()  # a process that is gone does nothing more, in none of its tasks
        try:
            await running
        except (Crash, asyncio.CancelledError):
            return True
        return False


Program = Callable[[Session], Awaitable[object]]


def built_in(setup: Setup) -> Program:
    agent = Agent(setup.agent, setup.model, setup.tools, prompt=setup.prompt)
    return lambda session: run_turns(session, agent, setup.task)


def new_world(ledger_url: str) -> World:
    return World(ledger_url, open_blobs("memory://"))


def kinds(events: Sequence[Event]) -> list[str]:
    return [event.name for event in events]


async def gathered(*calls: Awaitable[Any]) -> list[Any]:
    return list(await asyncio.gather(*calls))
