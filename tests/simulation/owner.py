"""The owner of a trajectory: real writer, pen, taking and lanes, under a program that calls tools and ends.

It is taken up again as a worker does it: when something has come into the inbox, and after a crash.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, Final, cast

from tests.simulation.log import SimLog, Store
from tests.simulation.loop import Process
from tests.simulation.tools import KEY_TTL_S
from tests.simulation.truth import TOPICS
from tracklog.infra.clock import Entropy
from tracklog.infra.log.port import Log
from tracklog.producers.deliveries import Deliveries
from tracklog.producers.dispatched import Dispatched
from tracklog.producers.mailbox import LogMailbox
from tracklog.producers.pen import WriterPen
from tracklog.producers.producer import EventProducer
from tracklog.producers.settle import Timing
from tracklog.producers.spans import Spans
from tracklog.producers.taking import Taking
from tracklog.producers.track import Track
from tracklog.producers.view import LogView
from tracklog.schemas import events as ev
from tracklog.schemas.codec import Event
from tracklog.schemas.errors import (
    ClaimLost,
    Fenced,
    InvalidEvent,
    LogUnavailable,
    OutcomeAwaited,
    PersonNeeded,
    Undecided,
)
from tracklog.schemas.lifecycle import CallStatus, Parked
from tracklog.schemas.limits import ACCEPTED_WINDOW
from tracklog.schemas.values import ZERO_HASH, Body, Driver, Effect, Ending, Place, Ruling, ToolCall

WITHIN_S: Final = 60.0
"""From an intent to the end of its first attempt's start."""
TIMING: Final = Timing(outcome_wait_s=1.0)
EFFECTS: Final = {"idempotent_probed": Effect.IDEMPOTENT}


class View(LogView):
    """Reads in the loop's own way instead of on a thread."""

    def __init__(self, log: Log, process: Process) -> None:
        self._log, self._topic, self._clock = log, TOPICS.events, process
        self._window, self._timeout_s = 1024 + ACCEPTED_WINDOW, 60.0
        self._tracks, self._starts, self._partitions, self._reader = {}, {}, 0, None
        self._spans, self._indices = Spans(), deque()

    async def refresh(self, trajectory_ids: Iterable[str], *, record: bool = False) -> dict[str, Track]:
        ids = frozenset(trajectory_ids)
        deadline_s = self._clock.monotonic_s() + self._timeout_s
        recorded = ids if record else frozenset[str]()
        tracks = dict(await asyncio.to_thread(self._read_back, ids, recorded, deadline_s))
        for track in tracks.values():
            track.fold()
        return tracks

    async def close(self) -> None: ...


class Producer(EventProducer):
    async def __aenter__(self) -> Producer:
        self._level = "fsync"
        self._deliveries = Deliveries(asyncio.get_running_loop())
        self._view = View(self._log, cast(Process, self.clock))
        return self


async def own(process: Process, store: Store, entropy: Entropy, trajectory_id: str, turns: tuple[Any, ...]) -> None:
    """Until the trajectory has ended."""
    log = cast(Log, SimLog(store))
    while True:
        inbox = len(store.of(TOPICS.inbox))
        try:
            async with Producer(log, topics=TOPICS, clock=process, entropy=entropy) as producer:
                if await _Run(process, log, producer, trajectory_id, turns).go():
                    return
            await store.news(TOPICS.inbox, inbox)
        except (ClaimLost, Fenced, Undecided, LogUnavailable, InvalidEvent):
            # InvalidEvent: what was read back goes on with what the next owner wrote, so this one was overtaken
            await asyncio.sleep(store.loop.chance.uniform(0.1, 3.0))


class _Run:
    """One time of owning it."""

    def __init__(self, process: Process, log: Log, producer: Producer, name: str, turns: tuple[Any, ...]) -> None:
        self._process, self._log, self._producer, self._name, self._turns = process, log, producer, name, turns
        self._seen: set[str] = set()
        self._steps: set[tuple[str, int]] = set()
        self._settled: set[str] = set()

    async def go(self) -> bool:
        """True when the trajectory has ended; False when it waits for something from outside."""
        history = await self._producer.history(self._name)
        if history.state.ended:
            return True
        writer = await self._producer.claim(self._name, owner="owner", driver=Driver.LIBRARY)
        events = (await self._producer.history(self._name)).events
        self._pen = WriterPen(writer)
        if writer.state.ended:  # by another start of its owner, before this claim
            await self._pen.release()
            return True
        mailbox = LogMailbox(self._log, TOPICS.inbox, self._name, clock=self._process)
        self._taking = Taking(self._pen, mailbox, self._process)
        record = SimpleNamespace(
            trajectory_id=self._name,
            taking=self._taking,
            check_live=lambda _: None,
            strand=SimpleNamespace(saw=lambda _: None),
        )
        self._dispatched = Dispatched(cast(Any, record), TIMING)
        self._dispatched.recall(events)
        self._recall(events)
        try:
            await self._work()
        except (OutcomeAwaited, PersonNeeded) as waits:
            parked = Parked.OUTCOME if isinstance(waits, OutcomeAwaited) else Parked.PERSON
            await self._pen.release(parked=parked)
            return False
        cancelled = self._taking.cancelled is not None
        ending = Ending.CANCELLED if cancelled else Ending.COMPLETED
        last = await self._append(ev.TaskEnded(ending=ending), len(self._turns))
        await self._pen.confirm(last)
        await self._pen.release()
        return True

    def _recall(self, events: Iterable[Event]) -> None:
        for event in events:
            self._steps.add((event.name, event.envelope.turn))
            if isinstance(event.body, ev.ToolIntent):
                self._seen.add(event.body.call_id)
            elif isinstance(event.body, ev.ToolResult):
                self._settled.add(event.body.call_id)

    async def _work(self) -> None:
        if ("TaskStarted", 0) not in self._steps:
            await self._append(ev.TaskStarted(driver=Driver.LIBRARY, task=Body.of("work"), agent="a"), 0)
        for number, tools in enumerate(self._turns, 1):
            await self._taking.look()
            calls = [
                ToolCall(call_id=f"{self._name}.{number}.{at}.{tool}", tool=tool, arguments="{}")
                for at, tool in enumerate(tools)
            ]
            if self._taking.cancelled is None:
                await self._turn(number, calls)
            for call in calls:
                if call.call_id in self._seen and call.call_id not in self._settled:
                    await self._dispatched.result(call)
                    self._settled.add(call.call_id)

    async def _turn(self, number: int, calls: list[ToolCall]) -> None:
        """What of the turn's beginning is not in the record yet."""
        if ("ContextBuilt", number) not in self._steps:
            built = ev.ContextBuilt(edits=(), context_hash=ZERO_HASH, messages=0, rule_version="1")
            await self._append(built, number)
        if ("ModelReplied", number) not in self._steps:
            await self._append(ev.ModelReplied(reply=Body.of("reply"), tool_calls=tuple(calls)), number)
        status = {name: one.status for name, one in self._pen.writer.state.calls.items()}
        for call in calls:
            if call.call_id in self._seen:
                continue
            if status.get(call.call_id, CallStatus.PROPOSED) is CallStatus.PROPOSED:
                ruled = ev.Authorized(call_id=call.call_id, ruling=Ruling.ALLOW, policy_version="1")
                await self._append(ruled, number)
            last = await self._append(self._intent(call), number, self._dispatched.ext(call.call_id))
            self._seen.add(call.call_id)
            await self._pen.confirm(last)

    def _intent(self, call: ToolCall) -> ev.ToolIntent:
        effect = EFFECTS.get(call.tool) or Effect(call.tool)
        idempotent = effect is Effect.IDEMPOTENT
        return ev.ToolIntent(
            call_id=call.call_id,
            tool=call.tool,
            arguments=Body.of(call.arguments),
            effect=effect,
            idempotency_key=f"key of {call.call_id}",
            key_ttl_ms=round(KEY_TTL_S * 1000) if idempotent else None,
            not_after=self._process.now_us() + round(WITHIN_S * 1_000_000),
            place=Place.DISPATCH,
        )

    async def _append(self, body: ev.EventBody, turn: int, ext: Any = None) -> int:
        return await self._pen.append(body, turn=turn, cause=None, ext=ext)
