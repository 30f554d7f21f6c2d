"""`python -m benchmarks.replaying`: strict replays from the log, in the processes of a suite.

The 120 recorded airline runs are run again live, by the built-in agent with recorded replies and HTTP tools, into a
SQLite file; then 300 replays of these by their own agents, and the 120 imported runs as far as they were recorded.
Exits 1 when one is not clean or the bound is missed.
"""

from __future__ import annotations

import asyncio
import os
import resource
import sys
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from benchmarks import results, services
from benchmarks.measure import Measure, table
from tests.support.airline import recordings
from tests.support.airline_agents import spec_of
from tests.support.airline_service import service_process
from tests.support.rerunning import rerun
from tracklog.consumers.importing import import_into
from tracklog.consumers.recorded_runs import RecordedRun, by_partition
from tracklog.consumers.suite import BATCH_RUNS_MAX, Came, Job, Outcome, run_suite
from tracklog.consumers.wiring import blobs_of, opened_log, producer_of
from tracklog.infra.clock import SystemClock
from tracklog.infra.settings import Settings, load_settings
from tracklog.producers.data import shipped_runs
from tracklog.producers.importers.run import Run

COMMAND = "python -m benchmarks.replaying"
REPLAYS = 300
SECONDS_MAX = 60.0


def measure_replays() -> list[Measure]:
    """What 300 replays take, and that all are clean."""
    with services.scratch() as folder:
        live, imported = _settings(folder / "live"), _settings(folder / "imported")
        asyncio.run(_run_again(live))
        with opened_log(imported, make_topics=True) as log:
            import_into(log, imported, [run for run in shipped_runs() if isinstance(run, Run) and _is_airline(run)])
        ids = [one.id for one in recordings()]
        specs = tuple(spec_of(one) for one in recordings())
        before_s = _processors_s()
        again, seconds = _replayed([ids, ids, ids[: REPLAYS - 2 * len(ids)]], live, specs)
        processors_s = _processors_s() - before_s
        events = sum(one.report.given for one in again if one.report is not None)
        as_recorded, imported_seconds = _replayed([ids], imported, ())
    return [
        Measure("replays of live runs from SQLite", len(again), "runs", "at least", REPLAYS),
        Measure("of these clean", _clean(again), "runs", "at least", REPLAYS),
        Measure("recorded events given out", events, "events"),
        Measure("time for all, processes included", seconds, "s", "at most", SECONDS_MAX),
        Measure("processor time of these processes", processors_s, "s"),
        Measure("replays of imported runs, clean", _clean(as_recorded), "runs", "at least", len(ids)),
        Measure("time for these", imported_seconds, "s"),
    ]


def _settings(home: Path) -> Settings:
    return load_settings(flags={"home": str(home)}, environ={}, cwd=home.parent)


def _is_airline(run: Run) -> bool:
    return run.trajectory_id in {one.id for one in recordings()}


async def _run_again(settings: Settings) -> None:
    with service_process(dict(os.environ)) as url, opened_log(settings, make_topics=True) as log:
        os.environ.update(AIRLINE_URL=url, AIRLINE_EFFECTS="idempotent")
        async with producer_of(settings, log) as producer:
            await rerun(log, producer, blobs_of(settings), recordings(), url)


def _replayed(
    rounds: Sequence[Sequence[str]], settings: Settings, agents: tuple[str, ...]
) -> tuple[list[Outcome], float]:
    """(how they came out, seconds). A round has each run once."""
    clock, outcomes = SystemClock(), list[Outcome]()
    begun_s = clock.monotonic_s()
    batches = [
        batch for ids in rounds for batch in by_partition([RecordedRun(one, settings) for one in ids], BATCH_RUNS_MAX)
    ]
    run_suite(batches, Job(agents), os.cpu_count() or 1, clock, outcomes.append)
    for one in islice((one for one in outcomes if one.came is not Came.CLEAN), 3):
        print(one.run.trajectory_id, one.problem or one.report, file=sys.stderr)
    return outcomes, clock.monotonic_s() - begun_s


def _processors_s() -> float:
    """Of the processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _clean(outcomes: Sequence[Outcome]) -> int:
    return sum(one.came is Came.CLEAN for one in outcomes)


def main() -> int:
    measures = measure_replays()
    print(table(measures))
    results.keep(COMMAND, table(measures))
    return 0 if all(one.met for one in measures) else 1


if __name__ == "__main__":
    sys.exit(main())
