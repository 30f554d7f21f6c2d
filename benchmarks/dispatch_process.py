"""A process of the dispatch benchmark: `worker URL FOLDER`, or `dispatch URL FOLDER`.

Prints `ready` when it has all partitions, then its processor seconds for each line `cpu`; works until its input ends.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable

from benchmarks.session_process import asking
from tracklog.consumers.dispatch.dispatcher import Dispatcher
from tracklog.infra.blobs import open_blobs
from tracklog.infra.clock import SystemClock, SystemEntropy
from tracklog.infra.collector import collect_rarely
from tracklog.infra.log.open import open_log
from tracklog.infra.log.port import Log
from tracklog.infra.settings import DispatchSettings, LoopSettings, WorkerSettings
from tracklog.producers.models import ModelAnswer, ModelRequest, calls_of
from tracklog.producers.producer import EventProducer
from tracklog.producers.settle import Timing
from tracklog.producers.tools import ToolSet, tool
from tracklog.producers.turn import Agent
from tracklog.producers.worker import Worker
from tracklog.producers.worker_run import Runner
from tracklog.schemas.topics import Topics

PARTITIONS = 12
CALLS = (40, 100)
TRAJECTORIES = 64
READY_S_MAX = 120.0


@tool(name="look", effect="idempotent", key_ttl_s=86_400, run="dispatch", calls_max=256)
async def echo(turn: int) -> str:
    return str(turn)


TOOLS = ToolSet.of(echo)


class Asking:
    """Asks for one call a turn, and says after the last that it is done."""

    name = "scripted"

    def __init__(self, calls: int) -> None:
        self._calls = calls

    async def reply(self, request: ModelRequest, *, on_token: Callable[[str], None] | None = None) -> ModelAnswer:
        turn = request.replies_before or 0
        if turn < self._calls:
            message = asking(turn)
            return ModelAnswer(message=message, tool_calls=calls_of(message), stop_reason="tool_calls", served="s")
        return ModelAnswer(message={"role": "assistant", "content": "done"}, stop_reason="stop", served="s")


async def work(log: Log, folder: str, stop: asyncio.Event) -> None:
    """Its agents are named by the calls that each makes."""
    agents = {f"calls-{one}": Agent("bench", Asking(one), TOOLS, turns_max=one + 1) for one in CALLS}
    async with EventProducer(log, topics=Topics(), clock=SystemClock(), entropy=SystemEntropy()) as producer:
        runner = Runner(
            log=log,
            producer=producer,
            topics=Topics(),
            agents=agents,
            blobs=open_blobs(f"{folder}/blobs"),
            clock=SystemClock(),
            entropy=SystemEntropy(),
            name="bench",
            settings=WorkerSettings(dispatches=True, trajectories_max=TRAJECTORIES),
            timing=Timing(),
        )
        worker = Worker(runner, loop_settings=LoopSettings())
        await until_stopped(worker, stop)


async def dispatch(log: Log, folder: str, stop: asyncio.Event) -> None:
    dispatcher = Dispatcher(
        log,
        Topics(),
        TOOLS,
        blobs=open_blobs(f"{folder}/blobs"),
        clock=SystemClock(),
        entropy=SystemEntropy(),
        name="bench",
        settings=DispatchSettings(),
        loop_settings=LoopSettings(),
        told=lambda line: print(line, file=sys.stderr, flush=True),
    )
    await until_stopped(dispatcher, stop)


async def until_stopped(member: Worker | Dispatcher, stop: asyncio.Event) -> None:
    running = asyncio.create_task(member.run(stop))
    async with asyncio.timeout(READY_S_MAX):
        while len(member.partitions) < PARTITIONS:  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(0.05)
    print("ready", flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        if line.strip() == "cpu":
            print(time.process_time(), flush=True)
    stop.set()
    await running


async def main(role: str, url: str, folder: str) -> None:
    log = open_log(url)
    await (work if role == "worker" else dispatch)(log, folder, asyncio.Event())
    log.close()


if __name__ == "__main__":
    collect_rarely()
    asyncio.run(main(*sys.argv[1:4]))
