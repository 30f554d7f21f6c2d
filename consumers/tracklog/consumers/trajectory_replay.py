"""Strict replay of recorded trajectories with the built-in agent: read from the log, nothing written."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from tracklog.consumers.wiring import blobs_of
from tracklog.infra.blobs import BlobStore
from tracklog.infra.log.port import Log
from tracklog.infra.settings import Settings
from tracklog.producers.bodies import whole_text
from tracklog.producers.history import read_history, started_of
from tracklog.producers.lineage import read_inherited
from tracklog.producers.replay import Report, replay
from tracklog.producers.setup import Setup
from tracklog.producers.turn import Agent, run_turns
from tracklog.producers.versions import Versions
from tracklog.schemas.codec import Event
from tracklog.schemas.errors import InputError, UnknownSchema
from tracklog.schemas.values import Driver

__all__ = ["replay_trajectory", "report_map"]


def replay_trajectory(log: Log, settings: Settings, agent: Agent, trajectory_id: str) -> Report:
    """Runs the agent over the record of a trajectory. Blocks.

    Raises InputError for a trajectory that is not there, was imported, or is another agent's; UnknownSchema for one
    that holds what this version cannot read; BlobMissing and BlobAltered.
    """
    topic = settings.topic_names.events
    events = [event for event, _ in read_history(log, topic, trajectory_id)[1]]
    inherited = read_inherited(log, topic, events)
    setup = _setup(events, agent, blobs_of(settings), trajectory_id)
    return asyncio.run(
        replay(events, lambda session: run_turns(session, agent, setup.task), setup=setup, inherited=inherited)
    )


def report_map(report: Report) -> dict[str, Any]:
    """For JSON. `divergence` is None for a clean one."""
    found = report.divergence
    divergence = None if found is None else {**found._asdict(), "cause": found.cause.value}
    return {**report._asdict(), "clean": report.clean, "divergence": divergence}


def _setup(events: Sequence[Event], agent: Agent, blobs: BlobStore, trajectory_id: str) -> Setup:
    started, versions = started_of(events), Versions.recorded(events)
    if started is None or versions is None:
        raise InputError(f"no trajectory {trajectory_id!r} that was started", hint="see: tracklog list")
    unknown = next((event for event in events if event.body is None), None)
    if unknown is not None:
        raise UnknownSchema(
            f"event {unknown.envelope.seq} of {trajectory_id!r} is a {unknown.name} of a version not known here",
            hint="replay it with a Tracklog that knows it",
        )
    if started.driver in (Driver.IMPORT, Driver.INGEST):
        raise InputError(
            f"trajectory {trajectory_id!r} was recorded by another harness (driver {started.driver.value})",
            hint="only what a session recorded can be replayed; `tracklog show` prints it",
        )
    if started.agent != agent.name:
        raise InputError(
            f"trajectory {trajectory_id!r} is of agent {started.agent!r}; given is {agent.name!r}",
            hint="replay it with the agent that recorded it, or give that one's name to its successor",
        )
    return agent.setup(
        whole_text(started.task, blobs),
        blobs,
        driver=started.driver,
        sampling=versions.sampling,  # an agent does not say its own
        labels=started.labels,
        code_version=started.code_version,
    )
