"""Processes of the benchmark of processors: LOG_URL REDIS_URL PREFIX native|faust|rebuild spend|all
[EVENTS].

Prints a line of JSON: seconds and processor seconds of the work itself, largest resident size, and of a rebuild what
came of it and the resident size at each tenth.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.projection_process import peak_mb
from tracklog.consumers.projections import Projections
from tracklog.infra.clock import SystemClock, SystemEntropy
from tracklog.infra.collector import collect_rarely
from tracklog.infra.log.open import open_log
from tracklog.infra.log.port import Log
from tracklog.infra.redis_client import RedisClient, connect
from tracklog.infra.settings_sections import Settings
from tracklog.processors.builtin.spend import Spend
from tracklog.processors.faust_runner import FaustRun, run_on_faust
from tracklog.processors.loading import BUILTIN
from tracklog.processors.running import Processes, processes

LOOK_S = 0.02


def resident_mb() -> float:
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


def work_of(log: Log, client: RedisClient, settings: Settings, what: str) -> Processes:
    kinds: list[Any] = [Spend] if what == "spend" else list(BUILTIN)
    made = [kind() for kind in kinds]
    return processes(made, log, client, settings, clock=SystemClock(), entropy=SystemEntropy(), builtin=what == "all")


async def on_faust(run: FaustRun, partitions: int, events: int) -> tuple[float, float]:
    """Seconds and processor seconds from the first stored position to the last. Says when it owns all partitions of an
    empty topic: what lies there before, it would read from the log itself."""
    stop = asyncio.Event()
    running = asyncio.create_task(run_on_faust(run, stop))
    while len(run.positions) < partitions:
        run.raise_failure()
        await asyncio.sleep(LOOK_S)
    print("ready", flush=True)
    while not any(run.positions.values()):
        run.raise_failure()
        await asyncio.sleep(LOOK_S)
    begun, begun_cpu, behind = time.perf_counter(), time.process_time(), events - sum(run.positions.values())
    while sum(run.positions.values()) < events:
        run.raise_failure()
        await asyncio.sleep(LOOK_S)
    took, cpu = time.perf_counter() - begun, time.process_time() - begun_cpu
    stop.set()
    await running
    return took * events / behind, cpu * events / behind


def rebuilt(log: Log, client: RedisClient, settings: Settings) -> dict[str, Any]:
    total = sum(log.bounds(settings.topic_names.events, p).end for p in range(settings.topics.partitions))
    sizes: list[float] = []
    done = 0

    def progress(records: int) -> None:
        nonlocal done
        done += records
        if done * 10 >= total * (len(sizes) + 1):
            sizes.append(resident_mb())

    made = Projections(log, client, settings).rebuild(Spend(), progress)
    return {"equal": made.equal, "records": made.records, "sizes_mb": sizes}


def main(log_url: str, redis_url: str, prefix: str, runner: str, what: str, events: str = "0") -> None:
    collect_rarely()
    settings = Settings.model_validate({"prefix": prefix, "log": {"url": log_url}, "redis": {"url": redis_url}})
    log, client = open_log(log_url), connect(redis_url, timeout_s=10.0)
    found: dict[str, Any] = {}
    begun, begun_cpu = time.perf_counter(), time.process_time()
    if runner == "rebuild":
        found = rebuilt(log, client, settings)
    elif runner == "native":
        work_of(log, client, settings, what).drain()
    took, cpu = time.perf_counter() - begun, time.process_time() - begun_cpu
    if runner == "faust":
        run = FaustRun(work_of(log, client, settings, what), log, settings)
        took, cpu = asyncio.run(on_faust(run, settings.topics.partitions, int(events)))
    client.close()
    log.close()
    print(json.dumps({"seconds": took, "cpu_s": cpu, "peak_mb": peak_mb(), **found}))


if __name__ == "__main__":
    main(*sys.argv[1:])
