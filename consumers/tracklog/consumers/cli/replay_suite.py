"""`tracklog replay suite`: recorded runs as a regression suite."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from tracklog.consumers.cli.ask_many import chosen_ids
from tracklog.consumers.cli.replay_runs import AgainOption, tell_report
from tracklog.consumers.cli.run import Run
from tracklog.consumers.cli.target_file import check_target, target_file
from tracklog.consumers.junit import junit_xml
from tracklog.consumers.recorded_runs import RecordedRun, by_partition, runs_of
from tracklog.consumers.suite import BATCH_RUNS_MAX, Came, Job, Outcome, run_suite
from tracklog.consumers.trajectory_replay import agents_by_name, report_map
from tracklog.infra.clock import SystemClock
from tracklog.schemas.errors import InputError

TOLD_MAX: Final = 20
"""Runs told of one by one; --json and --junit name all."""
JOBS_MAX: Final = 64


def suite(
    run: Run,
    file: Annotated[
        Path | None,
        typer.Argument(metavar="[FILE]", help="A list of ids, a pulled log, or a folder of pulled logs."),
    ] = None,
    where: Annotated[
        str | None, typer.Option(metavar="CEL", help="All runs that match, as `tracklog list --where`.")
    ] = None,
    agent: Annotated[
        list[str] | None,
        typer.Option(metavar="MODULE:AGENT", help="An agent, repeatable (else what each record says of its own)."),
    ] = None,
    jobs: Annotated[int | None, typer.Option(min=1, max=JOBS_MAX, help="Processes (else one a core).")] = None,
    again: AgainOption = None,
    limit_s: Annotated[float, typer.Option("--limit-s", min=0.1, help="The longest that one run may take.")] = 300.0,
    most: Annotated[int, typer.Option("--max", min=1, max=100_000, help="With --where: at most so many.")] = 1000,
    junit: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a JUnit file too.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say which.")] = False,
) -> None:
    """Replay many recorded runs, each as `replay trajectory` does, in processes side by side.

    A run that cannot be replayed (its agent is not among those given, a blob is missing, it is over the limit) is
    named, and the others go on. Exit code 1 when one diverges or cannot be replayed.

    \b
    Examples:
      tracklog replay suite --where 'agent == "airline"' --jobs 4 --agent my_agents:airline
      tracklog replay suite runs/ --agent my_agents:airline --junit replay.xml
    """
    if (file is None) == (where is None):
        raise InputError("suite takes a FILE or --where", hint="tracklog replay suite runs/ --agent MODULE:AGENT")
    job = Job(tuple(agent or ()), tuple(again or ()), limit_s)
    agents_by_name(job.agents)  # what is wrong with them is said once, and before anything is begun
    if junit is not None:
        check_target(junit)
    runs = runs_of(file, run.settings) if file is not None else _matching(run, where or "", most)
    if dry_run:
        tell_chosen(run, runs)
        return
    clock, outcomes = SystemClock(), list[Outcome]()
    batches = by_partition(runs, min(BATCH_RUNS_MAX, -(-len(runs) // (jobs or _cores()))))
    begun_s = clock.monotonic_s()
    with run.out.progress("replaying runs", len(runs)) as advance:

        def came(outcome: Outcome) -> None:
            outcomes.append(outcome)
            advance(1)

        run_suite(batches, job, jobs or _cores(), clock, came)
    seconds = clock.monotonic_s() - begun_s
    outcomes.sort(key=lambda one: (str(one.run.file or ""), one.run.trajectory_id))
    if junit is not None:
        with target_file(junit, force=True) as target:
            target.write(junit_xml(outcomes, seconds))
    tell(run, outcomes, seconds)


def _cores() -> int:
    return os.cpu_count() or 1


def _matching(run: Run, where: str, most: int) -> list[RecordedRun]:
    ids = chosen_ids(run, [], where, most, lambda _: True)
    return [RecordedRun(one, run.settings) for one in ids]


def tell_chosen(run: Run, runs: Sequence[RecordedRun]) -> None:
    """What would be replayed."""
    if run.as_json:
        run.out.json({"dry_run": True, "runs": [one.trajectory_id for one in runs]})
        return
    for one in runs:
        run.out.text(f"would replay {one.trajectory_id}")
    if not runs:
        run.out.text("no trajectory matches")


def tell(run: Run, outcomes: Sequence[Outcome], seconds: float) -> None:
    """What came out; a run that is not clean makes the exit code 1."""
    counts = Counter(one.came for one in outcomes)
    if run.as_json:
        numbers = {one.name.lower(): counts[one] for one in Came}
        runs = [_map(one) for one in outcomes]
        run.out.json({"total": len(outcomes), **numbers, "seconds": round(seconds, 3), "runs": runs})
    else:
        told = [one for one in outcomes if one.came is not Came.CLEAN]
        for one in told[:TOLD_MAX]:
            if one.report is not None:
                tell_report(run, one.report)
            else:
                run.out.warning(f"{one.run.trajectory_id}: {one.came.value}: {one.problem}")
        if len(told) > TOLD_MAX:
            run.out.text(f"and {len(told) - TOLD_MAX} more that are not clean; all of them with --json")
        words = ", ".join(f"{counts[one]} {one.value}" for one in Came if counts[one] or one is Came.CLEAN)
        run.out.text(f"{len(outcomes)} runs: {words}; {seconds:.1f} s" if outcomes else "no trajectory matches")
    if counts[Came.CLEAN] < len(outcomes):
        run.faulty()


def _map(one: Outcome) -> dict[str, Any]:
    return {
        "trajectory_id": one.run.trajectory_id,
        "file": None if one.run.file is None else str(one.run.file),
        "came": one.came.name.lower(),
        "problem": one.problem,
        "seconds": round(one.seconds, 3),
        "report": None if one.report is None else report_map(one.report),
    }
