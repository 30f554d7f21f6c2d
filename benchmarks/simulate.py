"""`make simulate SEEDS=N FIRST_SEED=M`: runs seeds, and shows the first that goes wrong as small as it gets."""

from __future__ import annotations

import argparse
import os
import sys
import time

from benchmarks.results import keep
from tests.simulation.many import all_ran
from tests.simulation.scenario import Scenario
from tests.simulation.shrink import shown, shrink

EVERY_S = 30.0
"""Between two lines about how far it is."""


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
        count, steps, cpu_s = count + batch.seeds, steps + batch.steps, cpu_s + batch.cpu_s
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
