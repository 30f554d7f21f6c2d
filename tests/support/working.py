"""Workers in this process over one log in memory, and a client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from tests.support.memory_logs import make_topics
from tests.support.sessions import ScriptedModel
from tests.support.writing import read_accepted
from tracklog.infra.blobs import open_blobs
from tracklog.infra.clock import SystemClock, SystemEntropy
from tracklog.infra.log.memory import MemoryLog
from tracklog.infra.log.memory_store import MemoryStore
from tracklog.infra.settings import LoopSettings, WorkerSettings
from tracklog.producers.client import Client
from tracklog.producers.producer import EventProducer
from tracklog.producers.relay import TokenRelay
from tracklog.producers.settle import Timing
from tracklog.producers.tools import ToolSet
from tracklog.producers.turn import Agent
from tracklog.producers.versions import Drift
from tracklog.producers.worker import Worker
from tracklog.producers.worker_files import WorkerFiles
from tracklog.producers.worker_run import Runner
from tracklog.schemas.codec import Event
from tracklog.schemas.topics import Topics
from tracklog.schemas.values import Driver

BOUND_S = 20.0
QUICK = LoopSettings(poll_timeout_s=0.02, batch_wait_s=0.0)
TIMING = Timing(start_within_s=5.0, grace_s=70.0, settle_wait_s=0.5)


class Works:
    """One log; workers come and go."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.blobs = open_blobs("memory://")
        self.log = self.new_log()
        make_topics(self.log, "tracklog", 2)
        self.client = Client(self.log, Topics(), blobs=self.blobs)

    def new_log(self) -> MemoryLog:
        clock = SystemClock()
        return MemoryLog(self.store, now_ms=lambda: clock.now_us() // 1000)

    def events(self, trajectory_id: str) -> list[Event]:
        return read_accepted(self.log, trajectory_id)

    def names(self, trajectory_id: str) -> list[str]:
        return [event.name for event in self.events(trajectory_id)]

    def parked(self, trajectory_id: str) -> str:
        """Why it was let go of last, "" while somebody has it."""
        events = self.events(trajectory_id)
        released = bool(events) and events[-1].name == "OwnershipReleased"
        return events[-1].envelope.ext.get("parked", "left") if released else ""

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(BOUND_S):
            while not condition():  # noqa: ASYNC110 - the log has no event to wait for
                await asyncio.sleep(0.01)

    @asynccontextmanager
    async def dying_owner(self, trajectory_id: str, driver: Driver = Driver.WORKER) -> AsyncIterator[None]:
        """A process that has claimed the trajectory, and is gone after the block."""
        log = self.new_log()
        async with EventProducer(log, topics=Topics(), clock=SystemClock(), entropy=SystemEntropy()) as producer:
            await producer.claim(trajectory_id, owner="dead", driver=driver)
            yield
        log.close()

    @asynccontextmanager
    async def worker(
        self,
        *agents: Agent,
        files: WorkerFiles | None = None,
        drift: Drift | None = None,
        relay: TokenRelay | None = None,
        **settings: Any,
    ) -> AsyncIterator[Worker]:
        """Runs until the block is left, then is told to stop."""
        log = self.new_log()
        async with EventProducer(log, topics=Topics(), clock=SystemClock(), entropy=SystemEntropy()) as producer:
            runner = Runner(
                log=log,
                producer=producer,
                topics=Topics(),
                agents={agent.name: agent for agent in agents},
                blobs=self.blobs,
                clock=SystemClock(),
                entropy=SystemEntropy(),
                name="worker-1",
                settings=WorkerSettings(**settings),
                timing=TIMING,
                files=files,
                drift=drift,
                relay=relay,
            )
            worker = Worker(runner, loop_settings=QUICK)
            stop = asyncio.Event()
            running = asyncio.create_task(worker.run(stop))
            try:
                yield worker
            finally:
                stop.set()
                await asyncio.wait_for(running, BOUND_S)
        log.close()


def agent_of(model: ScriptedModel, tools: ToolSet | None = None, **parts: Any) -> Agent:
    return Agent("traveller", model, tools if tools is not None else ToolSet.of(), prompt="be kind", **parts)
