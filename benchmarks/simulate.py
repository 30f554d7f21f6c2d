"""`make simulate SEEDS=N FIRST_SEED=M`: runs seeds, and shows the first that goes wrong as small as it gets."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator
from typing import NamedTuple

from benchmarks.results import keep
from tests.simulation.run import run
from tests.simulation.scenario import Scenario
from tests.simulation.shrink import shown, shrink

EVERY_S = 30.0
"""Between two lines about how far it is."""
BATCH = 20
"""Seeds that a process is given at once."""


class Ran(NamedTuple):
    """A batch of seeds: how many, the steps and the CPU seconds that they took, and those that went wrong."""

    count: int
    steps: int
    cpu_s: float
    wrong: tuple[int, ...]


def ran(first: int, count: int) -> Ran:
    began_s = time.process_time()
    ended = [(seed, run(Scenario.of(seed))) for seed in range(first, first + count)]
    wrong = tuple(seed for seed, one in ended if one.violation)
    return Ran(count, sum(one.steps for _, one in ended), time.process_time() - began_s, wrong)


def all_ran(first: int, count: int, processes: int) -> Iterator[Ran]:
    """Batch after batch, in any order."""
    batches = [(one, min(BATCH, first + count - one)) for one in range(first, first + count, BATCH)]
    if processes == 1:
        yield from (ran(*one) for one in batches)
        return
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        yield from pool.imap_unordered(_ran, batches)


def _ran(batch: tuple[int, int]) -> Ran:
    return ran(*batch)


def main() -> int:
    parser = argparse.ArgumentParser(prog="make simulate")
    parser.add_argument("--seeds", type=int, default=1000, metavar="N")
    parser.add_argument("--first-seed", type=int, default=0, metavar="M")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, metavar="N")
    parser.add_argument("--for-s", type=float, default=None, help="what was run after so many seconds is all")
    parser.add_argument("--keep", action="store_true", help="write the count into benchmarks/RESULTS.md")
    asked = parser.parse_args()
    began_s = said_s = time.monotonic()
    count, steps, cpu_s = 0, 0, 0.0
    for batch in all_ran(asked.first_seed, asked.seeds, asked.processes):
        count, steps, cpu_s = count + batch.count, steps + batch.steps, cpu_s + batch.cpu_s
        if batch.wrong:
            small, ended = shrink(Scenario.of(batch.wrong[0]))
            print(f"seed {batch.wrong[0]}, as small as it gets:\n{shown(small, ended)}")
            return 1
        if time.monotonic() - said_s > EVERY_S:
            said_s = time.monotonic()
            print(f"{count} seeds in {said_s - began_s:.0f} s", flush=True)
        if asked.for_s is not None and time.monotonic() - began_s > asked.for_s:
            break
    text = (
        f"{count} seeds from {asked.first_seed} on, {steps} steps: nothing went wrong. "
        f"{time.monotonic() - began_s:.0f} s with {asked.processes} processes, {cpu_s:.0f} s of CPU "
        f"({1000 * cpu_s / count:.0f} ms a seed)."
    )
    print(text)
    if asked.keep:
        keep("make simulate", text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
