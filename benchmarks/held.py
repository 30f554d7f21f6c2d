"""Runs that are held for a person, answered all together: whether each comes to its end, and what the worker takes.

python -m benchmarks held            10,000 runs, on a log in a file
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from contextlib import closing
from typing import Final

import orjson

from benchmarks import services
from benchmarks.measure import Measure, machine_load
from tracklog.infra.log.open import open_log
from tracklog.producers.answers import Answers
from tracklog.schemas.approvals import Approver
from tracklog.schemas.topics import Topics
from tracklog.schemas.values import Choice

RUNS: Final = 10_000
FEWER: Final = 1_000
WAITS_S: Final = 20.0
AT_ONCE: Final = 2_500
"""Answers that are under way at the same time."""
PROCESS_TIMEOUT_S: Final = 3_600.0
CALL: Final = "call-0"


def measure_held() -> list[Measure]:
    fewer, all_ = held(FEWER), held(RUNS)
    return [
        Measure(f"{RUNS:,} held runs, of which came to their end", all_["ended"], "runs", "at least", RUNS),
        Measure("all of them answered within", all_["answering_s"], "s", "at most", 60),
        Measure("from the first answer to the last end", all_["ending_s"], "s"),
        Measure("memory of the worker that has them", all_["taken_over_mb"], "MB"),
        Measure(f"what that grew by in {WAITS_S:g} s of waiting", all_["waited_mb"], "MB", "at most", 1),
        Measure("its processor time meanwhile", all_["waited_cpu_s"] / WAITS_S, "s/s", "at most", 0.05),
        Measure("memory when all have ended", all_["ended_mb"], "MB"),
        Measure(f"processor time for a run, of {FEWER:,}", fewer["run_ms"], "ms"),
        Measure(f"processor time for a run, of {RUNS:,}", all_["run_ms"], "ms"),
        Measure("the second to the first", all_["run_ms"] / fewer["run_ms"], "ratio", "at most", 1.3),
        machine_load(),
    ]


def held(runs: int) -> dict[str, float]:
    with services.scratch() as folder:
        program = [sys.executable, "-m", "benchmarks.held_process", str(folder)]
        subprocess.run([*program, "fill", str(runs)], check=True, timeout=PROCESS_TIMEOUT_S)
        worker = subprocess.Popen(
            [*program, "work", str(runs), str(WAITS_S)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert worker.stdin is not None
        assert worker.stdout is not None
        waited = orjson.loads(worker.stdout.readline())
        began_s = time.monotonic()
        answering_s = asyncio.run(answer(f"sqlite:{folder}/log.db", runs))
        ended = orjson.loads(worker.stdout.readline())
        ending_s = time.monotonic() - began_s
        worker.stdin.close()
        if worker.wait(PROCESS_TIMEOUT_S):
            raise RuntimeError("the worker of the benchmark of held runs failed")
    return {**waited, **ended, "answering_s": answering_s, "ending_s": ending_s}


async def answer(url: str, runs: int) -> float:
    """Approves all; returns the seconds from the first answer to the last."""
    with closing(open_log(url)) as log:
        answers, places = Answers(log, Topics()), asyncio.Semaphore(AT_ONCE)
        said: list[float] = []

        async def one(trajectory_id: str) -> None:
            async with places:
                await answers.answer(trajectory_id, CALL, who=Approver("ada"), choice=Choice.APPROVE)
                said.append(time.monotonic())

        await asyncio.gather(*(one(name_of(number)) for number in range(runs)))
    return max(said) - min(said)


def name_of(number: int) -> str:
    return f"order-{number:08}-of-the-day"
