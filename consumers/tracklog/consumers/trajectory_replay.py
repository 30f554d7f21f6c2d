"""Strict replay of recorded trajectories with the built-in agent: read from the log, nothing written."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tracklog.consumers.wiring import blobs_of
from tracklog.infra.blobs import BlobStore
from tracklog.infra.log.port import Log
from tracklog.infra.settings import Settings
from tracklog.producers.again import Again
from tracklog.producers.agents import load_agent
from tracklog.producers.bodies import whole_text
from tracklog.producers.cursor import Cursor
from tracklog.producers.history import read_history, started_of
from tracklog.producers.lineage import read_inherited
from tracklog.producers.record import Stage
from tracklog.producers.recorded_agent import recorded_agent
from tracklog.producers.replay import Report, replay
from tracklog.producers.setup import Setup
from tracklog.producers.turn import Agent, run_turns
from tracklog.producers.versions import Versions
from tracklog.schemas.codec import Event
from tracklog.schemas.errors import InputError, UnknownSchema
from tracklog.schemas.events import TaskStarted
from tracklog.schemas.redaction import Redaction

__all__ = [
    "Agents",
    "agents_by_name",
    "divergence_lines",
    "how_far",
    "replay_events",
    "replay_trajectory",
    "report_map",
]

Agents = Mapping[str, Agent]
"""By name. None at all: each run is replayed with the agent that its own record describes."""


def agents_by_name(specs: Iterable[str]) -> Agents:
    """Those that `MODULE:AGENT` names. Raises InputError, also for two of one name."""
    agents: dict[str, Agent] = {}
    for spec in specs:
        agent = load_agent(spec)
        if agents.setdefault(agent.name, agent) is not agent:
            raise InputError(f"two agents are called {agent.name!r}", hint="give one of them")
    return agents


def replay_trajectory(
    log: Log, settings: Settings, agents: Agents, trajectory_id: str, again: Iterable[Again] = ()
) -> Report:
    """Runs the agent of a trajectory over its record. Blocks.

    Raises InputError for a trajectory that is not there or is of no agent among these; UnknownSchema for one that
    holds what this version cannot read; BlobMissing and BlobAltered.
    """
    topic = settings.topic_names.events
    events = [event for event, _ in read_history(log, topic, trajectory_id)[1]]
    inherited, redaction = read_inherited(log, topic, events), settings.redaction.before_append()
    return asyncio.run(
        replay_events(trajectory_id, events, inherited, agents, blobs_of(settings), again, redaction=redaction)
    )


async def replay_events(
    trajectory_id: str,
    events: Sequence[Event],
    inherited: Sequence[Event],
    agents: Agents,
    blobs: BlobStore,
    again: Iterable[Again] = (),
    staged: Callable[[Cursor], Stage] | None = None,
    redaction: Redaction | None = None,
) -> Report:
    """The same for one whose events were read; `staged` as in `replay`, `redaction` what was in force."""
    started = _known(trajectory_id, events)
    agent = _of(trajectory_id, started, agents) if agents else recorded_agent([*inherited, *events], blobs)
    setup = replace(_setup(started, events, agent, blobs), redaction=redaction)
    return await replay(
        events,
        lambda session: run_turns(session, agent, setup.task),
        setup=setup,
        inherited=inherited,
        again=again,
        staged=staged,
    )


def report_map(report: Report) -> dict[str, Any]:
    """For JSON. `divergence` is None for a clean one."""
    found = report.divergence
    divergence = None if found is None else {**found._asdict(), "cause": found.cause.value}
    return {**report._asdict(), "clean": report.clean, "divergence": divergence}


def divergence_lines(report: Report) -> list[str]:
    """A report that is not clean, for people: where, and both sides."""
    found = report.divergence
    assert found is not None
    event = "the end of the record" if found.seq is None else f"event {found.seq}"
    return [
        f"{report.trajectory_id}: diverges at turn {found.turn}, {event} (after {how_far(report)})",
        f"  recorded  {found.recorded}",
        f"  asked for {found.asked}",
        f"  cause     {found.cause.value}",
    ]


def how_far(report: Report) -> str:
    """For people."""
    return f"{report.turns} turns, {report.given} events"


def _known(trajectory_id: str, events: Sequence[Event]) -> TaskStarted:
    started = started_of(events)
    if started is None:
        raise InputError(f"no trajectory {trajectory_id!r} that was started", hint="see: tracklog list")
    unknown = next((event for event in events if event.body is None), None)
    if unknown is not None:
        raise UnknownSchema(
            f"event {unknown.envelope.seq} of {trajectory_id!r} is a {unknown.name} of a version not known here",
            hint="replay it with a Tracklog that knows it",
        )
    return started


def _of(trajectory_id: str, started: TaskStarted, agents: Agents) -> Agent:
    if started.agent not in agents:
        raise InputError(
            f"trajectory {trajectory_id!r} is of agent {started.agent!r}; given is {' and '.join(map(repr, agents))}",
            hint="replay it with the agent that recorded it, or give that one's name to its successor",
        )
    return agents[started.agent]


def _setup(started: TaskStarted, events: Sequence[Event], agent: Agent, blobs: BlobStore) -> Setup:
    versions = Versions.recorded(events)
    assert versions is not None
    return agent.setup(
        whole_text(started.task, blobs),
        blobs,
        driver=started.driver,
        sampling=versions.sampling,  # an agent does not say its own
        labels=started.labels,
        budgets=started.budgets,
        code_version=started.code_version,
    )
