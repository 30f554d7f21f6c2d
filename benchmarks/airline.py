"""`python -m benchmarks.airline`: the 120 recorded airline runs done again by workers that are killed all the time.

On a real broker with a real service behind the tools, both of which it starts. Each set of effect classes is done
twice: in peace, and under a killer; the two are compared. Exits 1 when anything is wrong, and prints it.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from dataclasses import replace
from pathlib import Path

from benchmarks import results, services
from tests.support.airline import effects_chosen, recordings
from tests.support.airline_drive import Driven, Plan, drive
from tests.support.airline_judge import asked, expired, judge
from tests.support.airline_service import service_process

COMMAND = "make airline"
KILL_EVERY = 150
SETS = ("idempotent", "mixed")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.airline", description=__doc__)
    parser.add_argument("--runs", type=int, default=None, help="the first so many (default: all 120)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--effects", choices=SETS, action="append", help="default: both")
    given = parser.parse_args()
    rows, wrong = [], []
    with services.kafka() as bootstrap, services.scratch() as folder:
        for effects in given.effects or SETS:
            plan = Plan(recordings()[: given.runs], effects, seed=given.seed)
            peaceful = run(plan, bootstrap, f"peace-{effects}", folder)
            print(f"{effects}, in peace: {peaceful.accepted} events in {peaceful.seconds:.0f} s", flush=True)
            killed = replace(plan, kill_every=KILL_EVERY)
            driven = run(killed, bootstrap, f"kills-{effects}", folder)
            found = [*judge(plan, peaceful, peaceful), *judge(killed, driven, peaceful)]
            print(f"{effects}: {driven.accepted} events in {driven.seconds:.0f} s, {driven.kills} kills", flush=True)
            print("\n".join(found), flush=True)
            rows.append(row(killed, driven, peaceful, len(found)))
            wrong += found
    results.keep(COMMAND, page(given.seed, rows))
    return 1 if wrong else 0


def run(plan: Plan, bootstrap: str, prefix: str, folder: Path) -> Driven:
    with service_process(dict(os.environ)) as url:
        return asyncio.run(drive(plan, bootstrap, prefix, folder, url))


def row(plan: Plan, driven: Driven, peaceful: Driven, wrong: int) -> str:
    chosen = effects_chosen(plan.effects)
    calls = [call for one in plan.recordings for call, _ in one.calls if call[1] in chosen]
    made = sum(one["made"] for one in driven.effects if one["tool"] in chosen)
    again = sum(one["asked"] > 1 for one in driven.effects if one["tool"] in chosen)
    not_done = sum(expired(events) for events in driven.events.values())
    people = sum(asked(events) for events in driven.events.values())
    cells = (
        plan.effects,
        len(plan.recordings),
        driven.accepted,
        driven.kills,
        f"{made} of {len(calls)}",
        again,
        f"{driven.asked} ({driven.by_hand} done by the person)" if people else "0",
        not_done,
        f"{peaceful.seconds:.0f} s, {driven.seconds:.0f} s",
        wrong,
    )
    return f"| {' | '.join(str(cell) for cell in cells)} |"


def page(seed: int, rows: list[str]) -> str:
    head = (
        "| classes of the writing tools | runs | accepted events | SIGKILLs | writes in the service | sent again under "
        "their key | a person was asked | told `expired` | in peace, killed | wrong |\n"
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
    )
    text = (
        f"A random worker of three is killed after every {KILL_EVERY} accepted events (seed {seed}) and replaced while "
        "there are tasks to give; then they are killed until one is left. 10 runs at a time. Model: the recorded "
        "replies, and it checks what it is shown. Tools: HTTP, answered as recorded, effects counted by a process of "
        "its own. The users' turns come by the inbox. Wrong would be: a run that does not complete, a recorded write "
        "that reached the service other than once, or a run that is not the same work as in peace. A call of the class "
        "`probe` whose worker died before the send is told `expired` and has no effect (DESIGN §8): that run goes on "
        "otherwise than in peace and is not compared."
    )
    return "\n".join([text, "", head, *rows])


if __name__ == "__main__":
    sys.exit(main())
