"""One process of a suite: replays batch after batch, and says how each run came out (see `suite`)."""

from __future__ import annotations

import asyncio
import os
import signal
from multiprocessing.connection import Connection

from tracklog.consumers.recorded_runs import RecordedRun
from tracklog.consumers.suite import Begun, Came, Job, Outcome
from tracklog.consumers.trajectory_replay import Agents, agents_by_name, replay_events
from tracklog.consumers.wiring import blobs_of, opened_log
from tracklog.infra.blobs import BlobStore
from tracklog.infra.clock import Clock, SystemClock
from tracklog.infra.collector import collect_rarely
from tracklog.infra.log.port import Log
from tracklog.producers.history import read_histories
from tracklog.producers.lineage import read_inherited
from tracklog.producers.outside import raised_at
from tracklog.schemas.codec import Event
from tracklog.schemas.errors import TracklogError

__all__ = ["replayed", "serve"]


def serve(pipe: Connection, job: Job) -> None:
    """Until an empty batch comes, or nobody is there any more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started it ends it
    os.dup2(2, 1)  # what agents print is no part of what the command prints
    agents, clock = agents_by_name(job.agents), SystemClock()
    collect_rarely()
    while True:
        try:
            batch: list[RecordedRun] = pipe.recv()
        except EOFError:
            return
        if not batch:
            return
        _serve_batch(pipe, batch, job, agents, clock)
        pipe.send(None)


def _serve_batch(pipe: Connection, batch: list[RecordedRun], job: Job, agents: Agents, clock: Clock) -> None:
    settings = batch[0].settings
    topic, blobs = settings.topic_names.events, blobs_of(settings)
    with opened_log(settings) as log:
        try:
            histories = read_histories(log, topic, [run.trajectory_id for run in batch])
        except TracklogError as error:
            for run in batch:
                pipe.send(Outcome(run, Came.REFUSED, problem=str(error)))
            return
        for number, run in enumerate(batch):
            pipe.send(Begun(number))
            begun_s = clock.monotonic_s()
            events = [event for event, _ in histories.pop(run.trajectory_id)[1]]
            outcome = replayed(log, run, events, job, agents, blobs)
            pipe.send(outcome._replace(seconds=clock.monotonic_s() - begun_s))


def replayed(log: Log, run: RecordedRun, events: list[Event], job: Job, agents: Agents, blobs: BlobStore) -> Outcome:
    """How a run came out; whatever is wrong with it keeps no other one."""
    try:
        inherited = read_inherited(log, run.settings.topic_names.events, events)
        redaction = run.settings.redaction.before_append()
        replaying = replay_events(run.trajectory_id, events, inherited, agents, blobs, job.again, redaction=redaction)
        report = asyncio.run(replaying)
    except TracklogError as error:
        return Outcome(run, Came.REFUSED, problem=str(error))
    except Exception as error:  # noqa: BLE001 - of an agent that cannot even be set up
        return Outcome(run, Came.REFUSED, problem=f"{type(error).__name__}: {error}, raised at {raised_at(error)}")
    return Outcome(run, Came.CLEAN if report.clean else Came.DIVERGED, report)
