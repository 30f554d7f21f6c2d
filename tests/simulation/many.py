"""Many seeds, in several processes side by side."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator
from typing import Final, NamedTuple

from tests.simulation.run import run
from tests.simulation.scenario import Scenario

BATCH: Final = 20
"""Seeds that a process is given at once."""


class Ran(NamedTuple):
    """A batch of seeds: how many, the steps and the CPU seconds that they took, and those that went wrong."""

    seeds: int
    steps: int
    cpu_s: float
    wrong: tuple[int, ...]


def ran(batch: tuple[int, int]) -> Ran:
    """The seeds of (first, count)."""
    first, count = batch
    began_s = time.process_time()
    ended = [(seed, run(Scenario.of(seed))) for seed in range(first, first + count)]
    wrong = tuple(seed for seed, one in ended if one.violation)
    return Ran(count, sum(one.steps for _, one in ended), time.process_time() - began_s, wrong)


def all_ran(first: int, count: int, processes: int) -> Iterator[Ran]:
    """Batch after batch, in any order."""
    batches = [(one, min(BATCH, first + count - one)) for one in range(first, first + count, BATCH)]
    if processes == 1:
        yield from map(ran, batches)
        return
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        yield from pool.imap_unordered(ran, batches)
