"""`python -m benchmarks.crash_matrix`: SIGKILL, and SIGSTOP with a takeover, at every point x effect class x seed.

Of a process that runs one session and is started again; of workers of a group, where another one takes over by itself;
of two dispatchers that share the calls of a worker, on one broker and on three whose leaders are killed all the time;
and of dispatchers that come and go.
On real brokers with a real ledger service, which it starts. Exits 1 when any case broke a rule, and prints it.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from benchmarks import results, services
from benchmarks.crash_goes import FOLDER, GO_POINTS, goes, run_goes, table
from tests.support.churn import Churn
from tests.support.crash_matrix import AT_ONCE, CLASSES, Case, cases, judge_all, kill_all, overtaken, resumed
from tests.support.dispatch_matrix import POINTS as DISPATCH
from tests.support.dispatch_matrix import dispatched_cases, settled_cases, stop_all
from tests.support.matrix_worker import Job
from tests.support.member_matrix import MemberMatrix
from tests.support.points import POINTS
from tests.support.writing import make_topics
from tracklog.infra.log.open import open_log
from tracklog.infra.log.port import Log
from tracklog.schemas.topics import Topics

SEEDS = 20
COMMAND = "make crash-matrix"
PARTS = ("sessions", "workers", "dispatchers", "churn", "brokers")
CHURN_MINUTES = 5.0
STOPS = ("SIGKILL", "SIGSTOP")


@contextmanager
def ledger_process() -> Iterator[str]:
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-m", "tests.support.ledger"], stdin=pipe, stdout=pipe, text=True
    ) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.kill()


def kill(log: Log, job: Job, chosen: Sequence[Case]) -> list[str]:
    make_topics(log, Topics(job.prefix))
    kill_all(job, chosen)
    return judge_all(log, job, chosen, resumed(job, [case.trajectory_id for case in chosen]))


def freeze(log: Log, job: Job, chosen: Sequence[Case]) -> list[str]:
    make_topics(log, Topics(job.prefix))
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return [one for some in pool.map(lambda case: overtaken(log, job, case), chosen) for one in some]


class Row(NamedTuple):
    """One kind of stop: what it was, how many cases, what was wrong."""

    what: str
    cases: int
    wrong: list[str]

    def __str__(self) -> str:
        return f"| {self.what} | {self.cases} | {len(self.wrong)} |"


def sessions(log: Log, job: Job, seeds: int, until_s: float) -> Iterator[Row]:
    """Of one session in a process of its own, which is started again. No seed is begun after `until_s`."""
    places = f"{len(POINTS)} points x {len(CLASSES)} classes"
    wrong: list[str] = []
    done = 0
    for seed in range(seeds):
        if time.monotonic() > until_s:
            break
        done += 1
        found = kill(log, replace(job, prefix=f"kill-{seed}"), cases(seed))
        print(f"seed {seed}: {len(found)} wrong", *found, sep="\n", flush=True)
        wrong += found
    yield Row(f"session, SIGKILL at {places} x {done} seeds, then resumed", len(POINTS) * len(CLASSES) * done, wrong)
    frozen = cases(seeds)
    yield Row(
        f"session, SIGSTOP at {places}, overtaken, woken",
        len(frozen),
        freeze(log, replace(job, prefix="freeze"), frozen),
    )


def workers(log: Log, folder: Path, first: int, seeds: int) -> Iterator[Row]:
    """Of workers, three of which share the cases."""
    places = f"{len(POINTS)} points x {len(CLASSES)} classes x {seeds} seeds"
    for what, stop in (("SIGKILL", signal.SIGKILL), ("SIGSTOP", signal.SIGSTOP)):
        wrong: list[str] = []
        count = 0
        for seed in range(first, first + seeds):
            chosen = cases(seed, POINTS)
            prefix = f"workers-{what}-{seed}".lower()
            with ledger_process() as url:
                fired = asyncio.run(MemberMatrix(log, prefix, folder, url, chosen, stop).run())
            wrong += [*fired.wrong, *(f"never reached: {one}" for one in fired.never)]
            count += len(chosen)
        yield Row(f"worker, {what} at {places}, another takes over", count, wrong)


def dispatchers(log: Log, folder: Path, given: argparse.Namespace) -> Iterator[Row]:
    """Of two dispatchers and the worker whose calls they perform."""
    points, first, seeds = given.points, given.seeds + 1, given.worker_seeds
    places = f"{len(points)} points x {len(CLASSES)} classes and while others settle"
    for what in given.stop or STOPS:
        stop = signal.Signals[what]
        wrong: list[str] = []
        count = stops = 0
        for seed in range(first, first + seeds):
            chosen = [*dispatched_cases(seed, points), *settled_cases(seed, points)]
            fired = asyncio.run(stop_all(log, f"dispatch-{what}-{seed}".lower(), folder, chosen, stop))
            wrong += [*fired.wrong, *(f"never reached: {one}" for one in fired.never)]
            count, stops = count + len(chosen), stops + fired.stops
        yield Row(f"one broker: {what} at {places}, {seeds} seeds ({stops} stops), the other goes on", count, wrong)


def churn(log: Log, folder: Path, minutes: float) -> Iterator[Row]:
    """Of dispatchers that come and go."""
    with ledger_process() as url:
        found = asyncio.run(Churn(log, "churn", folder, url, seconds=60 * minutes, seed=1).run())
    known = ", ".join(f"{count} {how}" for how, count in found.settled.items())
    what = f"dispatchers come and go for {minutes:g} minutes: {found.moves} moves, calls settled {known}"
    yield Row(what, found.calls, found.wrong)


def on_one_broker(given: argparse.Namespace, parts: Sequence[str]) -> Iterator[tuple[str, Row]]:
    """Rows of the parts that need one broker."""
    until_s = time.monotonic() + 60 * given.minutes
    with services.kafka() as bootstrap, ledger_process() as ledger_url, services.scratch() as folder:
        log = open_log(f"kafka://{bootstrap}")
        job = Job(log.url, "matrix", str(Path(folder) / "blobs"), ledger_url, ())
        rows = {
            "sessions": lambda: sessions(log, job, given.seeds, until_s),
            "workers": lambda: workers(log, folder, given.seeds + 1, given.worker_seeds),
            "dispatchers": lambda: dispatchers(log, folder, given),
            "churn": lambda: churn(log, folder, CHURN_MINUTES),
        }
        for part in parts:
            if part in rows:
                yield from ((part, row) for row in rows[part]())
        log.close()


def on_three_brokers(given: argparse.Namespace) -> int:
    """The dispatchers' matrix again; how many goes of this time found something wrong, or came to no end."""
    first, wrong = given.seeds + 1, 0
    asked = goes(range(first, first + given.worker_seeds), given.stop or STOPS, given.points)
    for done in run_goes(asked, given.goes, given.folder):
        problems = [*done.wrong, *([done.broke] if done.broke else [])]
        print(f"{done.go.name}: {done.cases} cases, {done.stops} stops, {done.killed} brokers killed, {done.seconds} s")
        print(f"{len(problems)} wrong", *problems, sep="\n", flush=True)
        wrong += bool(problems)
        _keep("brokers", table(given.folder))  # after each: this may be ended before the last
    if given.goes == 0:
        _keep("brokers", table(given.folder))
    return wrong


def _keep(named: str, rows: Sequence[str]) -> None:
    results.keep(f"{COMMAND}: {named}", "\n".join(["| what | cases | broke a rule |", "| --- | --- | --- |", *rows]))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.crash_matrix", description=__doc__)
    parser.add_argument("--of", choices=PARTS, action="append", help="what is stopped (default: all of these)")
    parser.add_argument("--seeds", type=int, default=SEEDS, help=f"how many for sessions (default {SEEDS})")
    parser.add_argument("--worker-seeds", type=int, default=1, help="how many for the others (default 1)")
    parser.add_argument("--minutes", type=float, default=math.inf, help="after which no further seed is begun")
    parser.add_argument(
        "--points", choices=DISPATCH, nargs="+", default=DISPATCH, metavar="POINT", help="of dispatched calls"
    )
    parser.add_argument("--stop", choices=STOPS, action="append", help="how dispatchers are stopped (default: both)")
    parser.add_argument(
        "--goes", type=int, help=f"on three brokers: how many times {GO_POINTS} points (default: all; 0: none, keep)"
    )
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where those that are done are kept")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # what it started ends with it
    parts = given.of or PARTS
    wrong = 0
    kept: dict[str, list[str]] = {}
    for part, row in on_one_broker(given, parts) if set(parts) - {"brokers"} else ():
        print(row, *row.wrong, sep="\n", flush=True)
        wrong += len(row.wrong)
        kept.setdefault(part, []).append(str(row))
        _keep(" ".join((part, *(given.stop or ()))), kept[part])
    if "brokers" in parts:
        wrong += on_three_brokers(given)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
