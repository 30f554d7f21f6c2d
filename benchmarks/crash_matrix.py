"""`python -m benchmarks.crash_matrix`: SIGKILL, and SIGSTOP with a takeover, at every point x effect class x seed.

On a real broker with a real ledger service, both of which it starts. Exits 1 when any case broke a rule, and prints it.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from benchmarks import results, services
from tests.support.crash_matrix import CLASSES, Case, cases, judge_all, killed, overtaken, resumed
from tests.support.matrix_worker import Job
from tests.support.points import POINTS
from tests.support.writing import make_topics
from tracklog.infra.log.open import open_log
from tracklog.infra.log.port import Log
from tracklog.schemas.topics import Topics

SEEDS = 20
AT_ONCE = 2
COMMAND = "make crash-matrix"


@contextmanager
def ledger_process() -> Iterator[str]:
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-m", "tests.support.ledger"], stdin=pipe, stdout=pipe, text=True
    ) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.kill()


def kill_all(log: Log, job: Job, chosen: Sequence[Case]) -> list[str]:
    make_topics(log, Topics(job.prefix))
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(lambda case: killed(job, case), chosen))
    return judge_all(log, job, chosen, resumed(job, [case.trajectory_id for case in chosen]))


def freeze_all(log: Log, job: Job, chosen: Sequence[Case]) -> list[str]:
    make_topics(log, Topics(job.prefix))
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return [one for some in pool.map(lambda case: overtaken(log, job, case), chosen) for one in some]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.crash_matrix", description=__doc__)
    parser.add_argument("--seeds", type=int, default=SEEDS, help=f"how many (default {SEEDS})")
    seeds = parser.parse_args().seeds
    wrong: list[str] = []
    kills = freezes = 0
    with services.kafka() as bootstrap, ledger_process() as ledger_url, services.scratch() as folder:
        log = open_log(f"kafka://{bootstrap}")
        job = Job(log.url, "matrix", str(Path(folder) / "blobs"), ledger_url, ())
        for seed in range(seeds):
            chosen = cases(seed)
            wrong += kill_all(log, replace(job, prefix=f"kill-{seed}"), chosen)
            kills += len(chosen)
            print(f"seed {seed}: {kills} killed so far, {len(wrong)} wrong", flush=True)
        chosen = cases(seeds)
        wrong += freeze_all(log, replace(job, prefix="freeze"), chosen)
        freezes += len(chosen)
        print(f"{freezes} frozen and overtaken, {len(wrong)} wrong in all", flush=True)
        log.close()
    print("\n".join(wrong))
    text = (
        f"| what | cases | broke a rule |\n| --- | --- | --- |\n"
        f"| SIGKILL at {len(POINTS)} points x {len(CLASSES)} classes x {seeds} seeds, then resumed | {kills} | "
        f"{len(wrong)} in all |\n"
        f"| SIGSTOP at the same points, overtaken, woken | {freezes} | |"
    )
    results.keep(COMMAND, text)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
