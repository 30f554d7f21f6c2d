"""A worker in a process of its own that stops dead at a point of each of the trajectories it is given:

    python -m tests.support.matrix_member JOB      a JSON object, see `Membership`

It runs one trajectory at a time, when not told otherwise, so what stops it is that trajectory's point. Ends well at
SIGTERM.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Coroutine, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.support.dispatching import dispatched
from tests.support.matrix_worker import FAILURES_A_DAY, TIMING, model_of, tools
from tests.support.points import Armed, Points, watch
from tests.support.writing import on_log
from tracklog.infra.blobs import open_blobs
from tracklog.infra.clock import SystemClock, SystemEntropy
from tracklog.infra.settings import LoopSettings, WorkerSettings
from tracklog.producers.turn import Agent
from tracklog.producers.worker import Worker
from tracklog.producers.worker_run import Runner
from tracklog.schemas.errors import LogUnavailable
from tracklog.schemas.topics import Topics

TRIES_MAX = 100
"""Nothing is poison here: that a trajectory kills its owner is the point."""

OUTCOME_WAIT_S = 0.5


@dataclass(frozen=True)
class Membership:
    """`armed` by trajectory; `passed`: the folder where the processes count their passes together. `dispatches`: the
    tools are performed by dispatchers (`tests.support.matrix_dispatcher`)."""

    url: str
    prefix: str
    blobs: str
    ledger_url: str
    passed: str
    armed: Mapping[str, Armed]
    dispatches: bool = False
    trajectories_max: int = 1

    def argument(self) -> str:
        return json.dumps(asdict(self))


async def main(job: Membership) -> None:
    points, stop = Points(job.armed, Path(job.passed)), asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    offered = tools(job.ledger_url, points)
    if job.dispatches:
        offered = dispatched(offered)
    async with on_log(job.url, job.prefix, create=False) as (log, producer):
        watch(log, producer, points)
        runner = Runner(
            log=log,
            producer=producer,
            topics=Topics(job.prefix),
            agents={one: Agent(one, model_of(one), offered) for one in job.armed},
            blobs=open_blobs(job.blobs),
            clock=SystemClock(),
            entropy=SystemEntropy(),
            name="matrix",
            settings=WorkerSettings(
                trajectories_max=job.trajectories_max, tries_max=TRIES_MAX, outcome_wait_s=OUTCOME_WAIT_S
            ),
            timing=TIMING,
            failures_a_day=FAILURES_A_DAY,
        )
        loop = LoopSettings(poll_timeout_s=0.1, batch_wait_s=0.0)
        await Worker(runner, loop_settings=loop, told=_tell).run(stop)


def _tell(said: str) -> None:
    sys.stderr.write(f"{said}\n")


def job_from(argument: str) -> Membership:
    given: dict[str, Any] = json.loads(argument)
    return Membership(**{**given, "armed": {one: Armed(**armed) for one, armed in given["armed"].items()}})


def until_over(work: Coroutine[Any, Any, None]) -> None:
    """Ends as the command line does when nobody answers at the start: with a code of its own, to be started again."""
    away = False
    try:
        asyncio.run(work)
    except* LogUnavailable as errors:
        sys.stderr.write(f"{errors.exceptions[0]}\n")
        away = True
    if away:
        sys.exit(LogUnavailable.exit_code)


if __name__ == "__main__":
    until_over(main(job_from(sys.argv[1])))
