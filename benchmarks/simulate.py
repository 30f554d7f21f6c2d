"""`make simulate SEEDS=N FIRST_SEED=M`: runs seeds, and shows the first that goes wrong as small as it gets."""

from __future__ import annotations

import argparse
import sys
import time

from benchmarks.results import keep
from tests.simulation.run import run
from tests.simulation.scenario import Scenario
from tests.simulation.shrink import shown, shrink

EVERY_S = 30.0
"""Between two lines about how far it is."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="make simulate")
    parser.add_argument("--seeds", type=int, default=1000, metavar="N")
    parser.add_argument("--first-seed", type=int, default=0, metavar="M")
    parser.add_argument("--for-s", type=float, default=None, help="no seed is begun after so many seconds")
    parser.add_argument("--keep", action="store_true", help="write the count into benchmarks/RESULTS.md")
    asked = parser.parse_args()
    began_s = said_s = time.monotonic()
    steps = count = 0
    for seed in range(asked.first_seed, asked.first_seed + asked.seeds):
        if asked.for_s is not None and time.monotonic() - began_s > asked.for_s:
            break
        ended = run(Scenario.of(seed))
        count, steps = count + 1, steps + ended.steps
        if ended.violation:
            print(f"seed {seed}: {ended.violation}\nas small as it gets:\n{shown(*shrink(Scenario.of(seed)))}")
            return 1
        if time.monotonic() - said_s > EVERY_S:
            said_s = time.monotonic()
            print(f"{count} seeds, up to {seed}, in {said_s - began_s:.0f} s", flush=True)
    took_s = time.monotonic() - began_s
    last = asked.first_seed + count - 1
    text = (
        f"{count} seeds ({asked.first_seed} to {last}), {steps} steps: nothing went wrong. {took_s:.0f} s on one core."
    )
    print(text)
    if asked.keep:
        keep("make simulate", text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
