"""An agent in a process of its own that stops dead at a named point, on any log:

    python -m tests.support.matrix_worker JOB      a JSON object, see `Job`

Points are named by what is under way: `ToolIntent.append` is before the append, `.sent` right after it, `.stored`
when its report comes; `intent.unread` and `intent.read` are around its read-back, `effect.start` and `effect.end`
around the request to the ledger service. Prints what became of each trajectory.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

from tests.support.class_tools import class_tools
from tests.support.sessions import ScriptedModel, asks, built_in, says
from tests.support.writing import on_log
from tracklog.infra.blobs import BlobStore, open_blobs
from tracklog.infra.log.port import Delivered, Headers, Log, Position
from tracklog.producers.opening import opened
from tracklog.producers.producer import EventProducer
from tracklog.producers.settle import Timing
from tracklog.producers.setup import Setup
from tracklog.producers.tools import ToolSet, tool
from tracklog.producers.track import Track
from tracklog.schemas.errors import AppendError, TracklogError
from tracklog.schemas.topics import Topics

TURNS = 2
TIMING = Timing(start_within_s=0.6, grace_s=0.7, settle_wait_s=10.0)
TOOL_TIMEOUT_S = 0.6
STAGES = ("append", "sent", "stored")
EVENTS = ("ContextBuilt", "ModelReplied", "Authorized", "ToolIntent", "ToolResult", "TaskEnded")
POINTS = (
    *(f"{name}.{stage}" for name in EVENTS for stage in STAGES),
    "intent.unread",
    "intent.read",
    "effect.start",
    "effect.end",
)


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


class Points:
    def __init__(self, job: Job) -> None:
        self._job = job
        self._passed: Counter[str] = Counter()
        self.intent_open = False

    def at(self, point: str) -> None:
        self._passed[point] += 1
        if point == self._job.point and self._passed[point] == self._job.occurrence:
            threading.Event().wait(self._job.pause_s)  # where after the point it stops
            os.kill(os.getpid(), self._job.signal)


def effect_of(trajectory_id: str) -> str:
    """The class whose tool a trajectory calls: the first word of its id."""
    return trajectory_id.partition(".")[0]


def calls_of(trajectory_id: str) -> list[str]:
    return [f"{trajectory_id}-c{turn}" for turn in range(TURNS)]


def watch(log: Log, producer: EventProducer, points: Points) -> None:
    """Puts the points around appends and read-backs."""
    append, track_of = log.append, producer.track_of

    def watched(topic: str, key: bytes, value: bytes, headers: Headers, delivered: Delivered) -> None:
        name = dict(headers)["tl-type"].decode()

        def reported(position: Position | None, error: AppendError | None) -> None:
            if position is not None:
                points.at(f"{name}.stored")
            delivered(position, error)

        points.at(f"{name}.append")
        append(topic, key, value, headers, reported)
        points.intent_open = name == "ToolIntent"
        points.at(f"{name}.sent")

    async def read_back(trajectory_id: str) -> Track:
        of_intent = points.intent_open
        if of_intent:
            points.at("intent.unread")
        track = await track_of(trajectory_id)
        if of_intent:
            points.at("intent.read")
        return track

    log.append = watched  # type: ignore[method-assign]
    producer.track_of = read_back  # type: ignore[method-assign]


def tools(ledger_url: str, points: Points) -> ToolSet:
    def start() -> None:
        points.at("effect.start")

    def end() -> None:
        points.at("effect.end")

    @tool(effect="readonly", timeout_s=TOOL_TIMEOUT_S)
    def readonly(what: str) -> str:
        start()
        end()
        return f"found {what}"

    return ToolSet.of(readonly, *class_tools(ledger_url, start, end, timeout_s=TOOL_TIMEOUT_S))


def setup_of(trajectory_id: str, blobs: BlobStore, offered: ToolSet) -> Setup:
    model = ScriptedModel(
        *(asks((call_id, effect_of(trajectory_id))) for call_id in calls_of(trajectory_id)), says("done")
    )
    return Setup(agent="matrix", task="work", blobs=blobs, model=model, tools=offered, timing=TIMING)


async def main(job: Job) -> dict[str, str]:
    points = Points(job)
    blobs, offered = open_blobs(job.blobs), tools(job.ledger_url, points)
    async with on_log(job.url, job.prefix, create=False) as (log, producer):
        watch(log, producer, points)

        async def run(trajectory_id: str) -> str:
            setup = setup_of(trajectory_id, blobs, offered)
            try:
                async with opened(producer, trajectory_id, log=log, setup=setup, topics=Topics(job.prefix)) as session:
                    await built_in(setup)(session)
            except TracklogError as error:
                return type(error).__name__
            return "done"

        await producer.prefetch(job.trajectories)
        ended = await asyncio.gather(*(run(one) for one in job.trajectories))
    return dict(zip(job.trajectories, ended, strict=True))


def job_from(argument: str) -> Job:
    given: dict[str, Any] = json.loads(argument)
    return Job(**{**given, "trajectories": tuple(given["trajectories"])})


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asyncio.run(main(job_from(sys.argv[1])))) + "\n")
