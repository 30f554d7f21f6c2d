"""Processes of the benchmark of held runs: `FOLDER fill N` leaves N runs held; `FOLDER work N SECONDS` has them.

The second prints two lines of JSON: what having them cost for so many seconds, and what it cost to bring them to their
end once they were answered. It ends when its input does.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from contextlib import suppress
from typing import Final

import orjson

from benchmarks.held import name_of
from benchmarks.parked_process import PARTITIONS, TAKEN_OVER_S_MAX, agent_of, producer_on, resident_mb
from tracklog.infra.blobs import open_blobs
from tracklog.infra.clock import SystemClock, SystemEntropy
from tracklog.infra.collector import collect_rarely
from tracklog.infra.log.open import open_log
from tracklog.infra.log.port import Log
from tracklog.infra.settings import LoopSettings, WorkerSettings
from tracklog.producers.opening import opened
from tracklog.producers.settle import Timing
from tracklog.producers.turn import run_turns
from tracklog.producers.worker import Worker
from tracklog.producers.worker_run import Runner
from tracklog.schemas.errors import ApprovalNeeded
from tracklog.schemas.topics import Topics, topic_specs
from tracklog.schemas.values import Driver

AT_ONCE: Final = 64
ENDED_S_MAX: Final = 3_000.0
LOOK_S: Final = 0.2


async def fill(log: Log, folder: str, count: int) -> None:
    agent, blobs, places = agent_of(folder), open_blobs(f"{folder}/blobs"), asyncio.Semaphore(AT_ONCE)
    setup = agent.setup("look", blobs, driver=Driver.WORKER)
    async with producer_on(log) as producer:

        async def one(number: int) -> None:
            async with places:
                with suppress(ApprovalNeeded):
                    async with opened(producer, name_of(number), log=log, setup=setup) as session:
                        await run_turns(session, agent, "look")

        await asyncio.gather(*(one(number) for number in range(count)))


async def work(log: Log, folder: str, count: int, waits_s: float) -> None:
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
        if len(worker.roster) != count:
            raise RuntimeError(f"the worker knows of {len(worker.roster)} runs, there are {count}")
        taken_over_mb, cpu_s = settled_mb(), time.process_time()
        await asyncio.sleep(waits_s)
        waited = {"waited_cpu_s": time.process_time() - cpu_s, "waited_mb": settled_mb() - taken_over_mb}
        say({"taken_over_mb": taken_over_mb, **waited})
        cpu_s = time.process_time()
        async with asyncio.timeout(ENDED_S_MAX):
            while (ended := ended_in(worker)) < count:  # noqa: ASYNC110 - it tells nobody
                await asyncio.sleep(LOOK_S)
        say({"ended": ended, "run_ms": 1000 * (time.process_time() - cpu_s) / count, "ended_mb": settled_mb()})
        await asyncio.to_thread(sys.stdin.read)
        stop.set()
        await running


def ended_in(worker: Worker) -> int:
    return sum(kept.known.ended for kept in worker.roster)


def settled_mb() -> float:
    gc.collect()
    return resident_mb()


def say(found: dict[str, float]) -> None:
    print(orjson.dumps(found).decode(), flush=True)


if __name__ == "__main__":
    collect_rarely()
    place, what = sys.argv[1:3]
    opened_log = open_log(f"sqlite:{place}/log.db")
    if what == "fill":
        opened_log.create(
            topic_specs(
                Topics(), partitions=PARTITIONS, replication_factor=1, min_insync_replicas=1, max_message_bytes=1 << 20
            )
        )
        asyncio.run(fill(opened_log, place, int(sys.argv[3])))
    else:
        asyncio.run(work(opened_log, place, int(sys.argv[3]), float(sys.argv[4])))
    opened_log.close()
