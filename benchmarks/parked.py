"""What runs that wait cost the worker that has them."""

from __future__ import annotations

import statistics
import subprocess
import sys

from benchmarks import services
from benchmarks.measure import Measure

RUNS = 1_000
TIMES = 3
PROCESS_TIMEOUT_S = 600.0


def _process(*arguments: str) -> str:
    program = [sys.executable, "-m", "benchmarks.parked_process", *arguments]
    done = subprocess.run(program, capture_output=True, text=True, timeout=PROCESS_TIMEOUT_S, check=False)
    if done.returncode:
        raise RuntimeError(f"a process of the benchmark of runs that wait failed: {done.stderr[-2000:]}")
    return done.stdout


def measure_parked() -> list[Measure]:
    """The size of a worker that has taken over 1,000 runs which wait for a person, less that of one without any."""
    with services.scratch() as folder:
        empty, full = folder / "empty", folder / "full"
        for one in (empty, full):
            one.mkdir()
        _process(str(full), "fill", str(RUNS))
        cost = _size(str(full), RUNS) - _size(str(empty), 0)
    return [Measure("1,000 runs that wait: memory in the worker", cost, "MB", "at most", 10)]


def _size(folder: str, runs: int) -> float:
    found = [_process(folder).split() for _ in range(TIMES)]
    if any(int(known) != runs for _, known in found):
        raise RuntimeError(f"a worker that should know of {runs} runs knows of {found[0][1]}")
    return statistics.median(float(size) for size, _ in found)
