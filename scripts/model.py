"""`make model`: checks every case of docs/model/cases.txt with Spin. Needs `spin` and `gcc` (apt-get install spin gcc).

A case that holds must be searched through without an error; one that breaks, where a rule is taken out, must be found.
`--only WORD` takes those whose line has the word, `--list` only names them, `--keep` writes what came out into
benchmarks/RESULTS.md.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.results import keep

MODELS: Final = Path(__file__).parents[1] / "docs" / "model"
CASES: Final = MODELS / "cases.txt"
TIMEOUT_S: Final = 600.0
"""For one case; far more than any takes on a quiet machine."""
MEMORY_MB: Final = 4000
DEPTH: Final = 1_000_000
NEEDS: Final = ("spin", "gcc")
_CUT_SHORT: Final = ("max search depth too small", "Search not completed", "out of memory")


class Case(NamedTuple):
    """`live`: a formula is checked, under weak fairness. `holds` False: a rule is taken out. `rule`: of DESIGN §8."""

    name: str
    model: str
    options: tuple[str, ...]
    live: bool
    holds: bool
    rule: str


class Checked(NamedTuple):
    """`found`: an error was. `states` were stored. `problem`: why it came to no end, "" when it did."""

    found: bool
    states: int
    seconds: float
    problem: str = ""


def cases() -> tuple[Case, ...]:
    lines = (line for line in CASES.read_text().splitlines() if line and not line.startswith("#"))
    out = []
    for line in lines:
        name, model, options, kind, expected, rule = line.split("|")
        out.append(Case(name, model, tuple(options.split()), kind == "live", expected == "holds", rule))
    return tuple(out)


def check(case: Case, timeout_s: float = TIMEOUT_S) -> Checked:
    """Runs Spin on one case, in a directory of its own."""
    began_s = time.monotonic()
    live = ("-DLIVE",) if case.live else ()
    how = ("-DNFAIR=3",) if case.live else ("-DSAFETY",)
    search = ("-a", "-f") if case.live else ("-E",)
    with tempfile.TemporaryDirectory() as directory:
        shutil.copy(MODELS / f"{case.model}.pml", directory)
        limits = (f"-DMEMLIM={MEMORY_MB}", "-DVECTORSZ=1024", "-DCOLLAPSE")
        commands = (
            ("spin", "-a", *case.options, *live, f"{case.model}.pml"),
            ("gcc", "-O2", "-w", *how, *limits, "-o", "pan", "pan.c"),
            ("./pan", *search, f"-m{DEPTH}"),
        )
        said = ""
        for command in commands:
            try:
                done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=timeout_s)
            except subprocess.TimeoutExpired:
                return Checked(False, 0, time.monotonic() - began_s, f"no end within {timeout_s:g} s")
            said = done.stdout + done.stderr
            if done.returncode != 0:
                return Checked(False, 0, time.monotonic() - began_s, said.strip()[-500:])
    errors, states = re.search(r"errors: (\d+)", said), re.search(r"(\d+) states, stored", said)
    found = errors is not None and int(errors[1]) > 0
    problem = next((one for one in _CUT_SHORT if one in said and not found), "" if errors else said[-500:])
    return Checked(found, int(states[1]) if states else 0, time.monotonic() - began_s, problem)


def wrong(case: Case, checked: Checked) -> str:
    """In words, "" for a case that came out as it should."""
    if checked.problem:
        return checked.problem
    if checked.found == case.holds:
        return "an error was found" if checked.found else "no counterexample was found"
    return ""


def _all(chosen: Iterable[Case], processes: int) -> list[tuple[Case, Checked]]:
    """All of them, in their order; each is told when it is over."""
    over = []
    with ThreadPoolExecutor(processes) as pool:
        for case, checked in pool.map(lambda one: (one, check(one)), chosen):
            problem = wrong(case, checked)
            over.append((case, checked))
            came_out = problem or ("holds" if case.holds else "counterexample found")
            about = f"{checked.states} states, {checked.seconds:.1f} s"
            print(
                f"{'FAIL' if problem else 'ok':4} {case.model:9} {case.name}: {came_out} ({about}) rule {case.rule}",
                flush=True,
            )
    return over


def _table(over: Iterable[tuple[Case, Checked]]) -> str:
    """Those that hold, with how far they were searched; of the others how many there are."""
    rows = ["| model | case, as built | states | s |", "| --- | --- | ---: | ---: |"]
    rows += [
        f"| {case.model} | {case.name}{': ' + problem if (problem := wrong(case, checked)) else ''} "
        f"| {checked.states:,} | {checked.seconds:.0f} |"
        for case, checked in over
        if case.holds
    ]
    found = [not wrong(case, checked) for case, checked in over if not case.holds]
    return "\n".join([*rows, "", f"Cases with a rule taken out: {len(found)}, counterexample found in {sum(found)}."])


def main() -> int:
    parser = argparse.ArgumentParser(prog="make model")
    parser.add_argument("--only", default="", metavar="WORD")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    asked = parser.parse_args()
    chosen = [one for one in cases() if asked.only in "|".join((one.name, one.model, *one.options, one.rule))]
    if asked.list:
        print("\n".join(f"{one.model}: {one.name} (rule {one.rule})" for one in chosen))
        return 0
    missing = [one for one in NEEDS if shutil.which(one) is None]
    if missing:
        print(f"not on the PATH: {', '.join(missing)}. On Debian or Ubuntu: apt-get install {' '.join(NEEDS)}")
        return 1
    began_s = time.monotonic()
    over = _all(chosen, asked.processes)
    failed = sum(bool(wrong(case, checked)) for case, checked in over)
    if asked.keep:
        keep("make model", _table(over))
    print(f"{len(chosen)} cases, {failed} not as they should be, {time.monotonic() - began_s:.0f} s")
    return 1 if failed or not chosen else 0


if __name__ == "__main__":
    sys.exit(main())
