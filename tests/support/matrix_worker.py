"""An agent in a process of its own that stops dead at a named point, on any log:

    python -m tests.support.matrix_worker JOB      a JSON object, see `Job`

See `tests.support.points` for the points. A checkpoint is taken after every turn. Prints what became of each
trajectory.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from dataclasses import asdict, dataclass
from typing import Any

from tests.support.class_tools import class_tools
from tests.support.points import Armed, Points, watch
from tests.support.sessions import ScriptedModel, asks, built_in, says
from tests.support.writing import on_log
from tracklog.infra.blobs import BlobStore, open_blobs
from tracklog.producers.opening import opened
from tracklog.producers.settle import Timing
from tracklog.producers.setup import Setup
from tracklog.producers.tools import CallContext, ToolSet, tool
from tracklog.schemas.errors import TracklogError
from tracklog.schemas.topics import Topics

TURNS = 2
TIMING = Timing(start_within_s=5.0, grace_s=3.0, settle_wait_s=20.0)
"""So long that a busy machine is not taken for a call that came too late."""
TOOL_TIMEOUT_S = 2.5
FAILURES_A_DAY = 1e9
"""So that a checkpoint is due after every turn."""


@dataclass(frozen=True)
class Job:
    """`point` None: nothing stops. `occurrence` counts from 1; `pause_s` is spent at the point before it stops."""

    url: str
    prefix: str
    blobs: str
    ledger_url: str
    trajectories: tuple[str, ...]
    point: str | None = None
    occurrence: int = 1
    pause_s: float = 0.0
    signal: int = int(signal.SIGKILL)

    def argument(self) -> str:
        return json.dumps(asdict(self))


def effect_of(trajectory_id: str) -> str:
    """The class whose tool a trajectory calls: the first word of its id."""
    return trajectory_id.partition(".")[0]


def calls_of(trajectory_id: str) -> list[str]:
    return [f"{trajectory_id}-c{turn}" for turn in range(TURNS)]


def tools(ledger_url: str, points: Points, timeout_s: float = TOOL_TIMEOUT_S) -> ToolSet:
    def start(context: CallContext) -> None:
        points.at(context.trajectory_id, "effect.start")

    def end(context: CallContext) -> None:
        points.at(context.trajectory_id, "effect.end")

    @tool(effect="readonly", timeout_s=timeout_s)
    def readonly(what: str, context: CallContext) -> str:
        start(context)
        end(context)
        return f"found {what}"

    return ToolSet.of(readonly, *class_tools(ledger_url, start, end, timeout_s=timeout_s))


def setup_of(trajectory_id: str, blobs: BlobStore, offered: ToolSet) -> Setup:
    return Setup(
        agent="matrix",
        task="work",
        blobs=blobs,
        model=model_of(trajectory_id),
        tools=offered,
        timing=TIMING,
        failures_a_day=FAILURES_A_DAY,
    )


def model_of(trajectory_id: str) -> ScriptedModel:
    asked = (asks((call_id, effect_of(trajectory_id))) for call_id in calls_of(trajectory_id))
    return ScriptedModel(*asked, says("done"))


async def main(argument: str) -> str:
    """What became of each trajectory of the job, as JSON."""
    job = job_from(argument)
    armed = Armed(job.point, job.occurrence, job.pause_s, job.signal) if job.point is not None else None
    points = Points({} if armed is None else dict.fromkeys(job.trajectories, armed))
    blobs, offered = open_blobs(job.blobs), tools(job.ledger_url, points)
    async with on_log(job.url, job.prefix, create=False) as (log, producer):
        watch(log, producer, points)

        async def run(trajectory_id: str) -> str:
            setup = setup_of(trajectory_id, blobs, offered)
            try:
                async with opened(
                    producer, trajectory_id, log=log, setup=setup, topics=Topics(job.prefix), from_checkpoint=True
                ) as session:
                    await built_in(setup)(session)
            except TracklogError as error:
                return type(error).__name__
            return "done"

        await producer.prefetch(job.trajectories)
        ended = await asyncio.gather(*(run(one) for one in job.trajectories))
    return json.dumps(dict(zip(job.trajectories, ended, strict=True)))


def job_from(argument: str) -> Job:
    given: dict[str, Any] = json.loads(argument)
    return Job(**{**given, "trajectories": tuple(given["trajectories"])})


if __name__ == "__main__":
    sys.stdout.write(asyncio.run(main(sys.argv[1])) + "\n")
