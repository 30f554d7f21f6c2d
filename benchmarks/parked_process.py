"""A worker that has just taken over a log of runs that wait; prints its size in MB, and how many runs it knows of.

With `fill N` it is the process that leaves N runs waiting: each for a person, about a call that is held.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from contextlib import suppress
from pathlib import Path

from benchmarks.session_process import Scripted, Seen, Work, looking
from tracklog.infra.blobs import open_blobs
from tracklog.infra.clock import SystemClock, SystemEntropy
from tracklog.infra.collector import collect_rarely
from tracklog.infra.log.open import open_log
from tracklog.infra.log.port import Log
from tracklog.infra.settings import LoopSettings, WorkerSettings
from tracklog.producers.opening import opened
from tracklog.producers.policy_file import PolicyFile
from tracklog.producers.producer import EventProducer
from tracklog.producers.settle import Timing
from tracklog.producers.tools import ToolSet
from tracklog.producers.turn import Agent, run_turns
from tracklog.producers.worker import Worker
from tracklog.producers.worker_run import Runner
from tracklog.schemas.errors import ApprovalNeeded
from tracklog.schemas.topics import Topics, topic_specs
from tracklog.schemas.values import Driver

PARTITIONS = 12
TAKEN_OVER_S_MAX = 300.0
HELD = b'default = "hold"\n'


def resident_mb() -> float:
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


def agent_of(folder: str) -> Agent:
    model = Scripted(Work(folder, 1, 2_048), Seen())
    return Agent("bench", model, ToolSet.of(looking(2_048)), policy=PolicyFile(HELD, "held.toml"), prompt="be kind")


def producer_on(log: Log) -> EventProducer:
    return EventProducer(log, topics=Topics(), clock=SystemClock(), entropy=SystemEntropy())


async def fill(log: Log, folder: str, count: int) -> None:
    agent = agent_of(folder)
    setup = agent.setup("look", open_blobs(f"{folder}/blobs"), driver=Driver.WORKER)
    async with producer_on(log) as producer:
        for number in range(count):
            with suppress(ApprovalNeeded):
                async with opened(producer, f"order-{number:08}-of-the-day", log=log, setup=setup) as session:
                    await run_turns(session, agent, "look")


async def take_over(log: Log, folder: str) -> tuple[float, int]:
    """(size in MB, how many runs it knows of)."""
    async with producer_on(log) as producer:
        runner = Runner(
            log=log,
            producer=producer,
            topics=Topics(),
            agents={"bench": agent_of(folder)},
            blobs=open_blobs(f"{folder}/blobs"),
            clock=SystemClock(),
            entropy=SystemEntropy(),
            name="bench",
            settings=WorkerSettings(),
            timing=Timing(),
        )
        worker, stop = Worker(runner, loop_settings=LoopSettings()), asyncio.Event()
        running = asyncio.create_task(worker.run(stop))
        async with asyncio.timeout(TAKEN_OVER_S_MAX):
            while len(worker.partitions) < PARTITIONS or worker.running or worker.roster.backlog:  # noqa: ASYNC110 - it tells nobody
                await asyncio.sleep(0.05)
        gc.collect()
        found = resident_mb(), len(worker.roster)
        stop.set()
        await running
    return found


if __name__ == "__main__":
    collect_rarely()
    opened_log = open_log(f"sqlite:{sys.argv[1]}/log.db")
    opened_log.create(
        topic_specs(
            Topics(), partitions=PARTITIONS, replication_factor=1, min_insync_replicas=1, max_message_bytes=1 << 20
        )
    )
    if sys.argv[2:3] == ["fill"]:
        asyncio.run(fill(opened_log, sys.argv[1], int(sys.argv[3])))
    else:
        print(*asyncio.run(take_over(opened_log, sys.argv[1])))
    opened_log.close()
