"""Strict replay of recorded trajectories with the built-in agent: read from the log, nothing written."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

from tracklog.consumers.wiring import blobs_of
from tracklog.infra.blobs import BlobStore
from tracklog.infra.log.port import Log
from tracklog.infra.settings import Settings
from tracklog.producers.again import Again
from tracklog.producers.bodies import whole_text
from tracklog.producers.history import read_history, started_of
from tracklog.producers.lineage import read_inherited
from tracklog.producers.recorded_agent import recorded_agent
from tracklog.producers.replay import Report, replay
from tracklog.producers.setup import Setup
from tracklog.producers.turn import Agent, run_turns
from tracklog.producers.versions import Versions
from tracklog.schemas.codec import Event
from tracklog.schemas.errors import InputError, UnknownSchema

__all__ = ["replay_events", "replay_trajectory", "report_map"]


def replay_trajectory(
    log: Log, settings: Settings, agent: Agent | None, trajectory_id: str, again: Iterable[Again] = ()
) -> Report:
    """Runs the agent over the record of a trajectory; None for the one that the record itself describes. Blocks.

    Raises InputError for a trajectory that is not there or is another agent's; UnknownSchema for one that holds what
    this version cannot read; BlobMissing and BlobAltered.
    """
    topic = settings.topic_names.events
    events = [event for event, _ in read_history(log, topic, trajectory_id)[1]]
    inherited = read_inherited(log, topic, events)
    return asyncio.run(replay_events(trajectory_id, events, inherited, agent, blobs_of(settings), again))


async def replay_events(
    trajectory_id: str,
    events: Sequence[Event],
    inherited: Sequence[Event],
    agent: Agent | None,
    blobs: BlobStore,
    again: Iterable[Again] = (),
) -> Report:
    """The same for one whose events were read."""
    _check_known(trajectory_id, events)
    given = agent if agent is not None else recorded_agent([*inherited, *events], blobs)
    setup = _setup(trajectory_id, events, given, blobs)
    return await replay(
        events, lambda session: run_turns(session, given, setup.task), setup=setup, inherited=inherited, again=again
    )


def report_map(report: Report) -> dict[str, Any]:
    """For JSON. `divergence` is None for a clean one."""
    found = report.divergence
    divergence = None if found is None else {**found._asdict(), "cause": found.cause.value}
    return {**report._asdict(), "clean": report.clean, "divergence": divergence}


def _check_known(trajectory_id: str, events: Sequence[Event]) -> None:
    if started_of(events) is None:
        raise InputError(f"no trajectory {trajectory_id!r} that was started", hint="see: tracklog list")
    unknown = next((event for event in events if event.body is None), None)
    if unknown is not None:
        raise UnknownSchema(
            f"event {unknown.envelope.seq} of {trajectory_id!r} is a {unknown.name} of a version not known here",
            hint="replay it with a Tracklog that knows it",
        )


def _setup(trajectory_id: str, events: Sequence[Event], agent: Agent, blobs: BlobStore) -> Setup:
    started, versions = started_of(events), Versions.recorded(events)
    assert started is not None
    assert versions is not None
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
        budgets=started.budgets,
        code_version=started.code_version,
    )
