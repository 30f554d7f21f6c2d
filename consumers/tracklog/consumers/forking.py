"""Forks with the built-in agent, from the settings of the process."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

import orjson

from tracklog.consumers.wiring import blobs_of, producer_of
from tracklog.infra.log.port import Log
from tracklog.infra.settings import Settings
from tracklog.producers.bodies import whole_text
from tracklog.producers.fork import Changes, forked
from tracklog.producers.history import read_history, started_of
from tracklog.producers.lineage import fork_point, read_inherited
from tracklog.producers.models import Model
from tracklog.producers.policy_file import load_policy
from tracklog.producers.producer import EventProducer
from tracklog.producers.setup import Setup
from tracklog.producers.turn import Agent, run_turns
from tracklog.producers.versions import Drift
from tracklog.schemas.codec import Event
from tracklog.schemas.errors import InputError, TracklogError
from tracklog.schemas.events import TaskStarted

__all__ = ["CHANGES", "Asked", "Forked", "changes_of", "check_point", "fork_all", "fork_id", "would_fork"]

CHANGES: Final = ("model", "prompt", "policy", "reply")
"""What can be changed, by name."""
ID_HEX: Final = 8


class Asked(NamedTuple):
    """What every fork is to begin with. `words` are the changes as they were asked for, files as their texts."""

    turn: int
    words: Mapping[str, str]
    changes: Changes
    allow: tuple[str, ...]
    drift: Drift | None = None
    """For a fork that was begun and left with other versions."""


class Forked(NamedTuple):
    """What became of one. `error` is empty when it came to its end."""

    trajectory_id: str
    origin: str
    result: str
    error: str = ""


def changes_of(words: Mapping[str, str], agent: Agent) -> tuple[Mapping[str, str], Changes]:
    """(the changes with the texts of files, the changes) from `model=NAME`, `prompt=FILE`, `policy=FILE`,
    `reply=FILE`.

    Raises InputError for a file that cannot be read, and for a model that the agent's cannot be changed to.
    """
    texts = {name: value if name == "model" else _text(value) for name, value in words.items()}
    model = _model(agent, texts["model"]) if "model" in texts else None
    policy = load_policy(Path(words["policy"])) if "policy" in words else None
    return texts, Changes(model=model, prompt=texts.get("prompt"), policy=policy, reply=texts.get("reply"))


def fork_id(origin: str, asked: Asked) -> str:
    """The id of a fork that was given none: the same for the same fork, so that the same call goes on with it."""
    begun = orjson.dumps([asked.turn, dict(asked.words), asked.allow], option=orjson.OPT_SORT_KEYS)
    return f"{origin}.fork-{asked.turn}-{hashlib.sha256(begun).hexdigest()[:ID_HEX]}"


def fork_all(
    log: Log, settings: Settings, agent: Agent, origins: Sequence[str], asked: Asked, *, new_id: str | None = None
) -> list[Forked]:
    """Forks each and runs it to its end. Blocks. Of several, one that fails does not keep the others."""

    async def run() -> list[Forked]:
        async with producer_of(settings, log) as producer:
            return [await _one(log, settings, producer, agent, origin, asked, new_id) for origin in origins]

    return asyncio.run(run())


def would_fork(
    log: Log, settings: Settings, agent: Agent, origins: Sequence[str], asked: Asked, *, new_id: str | None = None
) -> list[Forked]:
    """What `fork_all` would fork, and what keeps it from those that it could not. Blocks; writes nothing."""
    return [
        Forked(new_id or fork_id(origin, asked), origin, "", _hindrance(log, settings, agent, origin, asked.turn))
        for origin in origins
    ]


def check_point(log: Log, settings: Settings, origin: str, turn: int) -> TaskStarted:
    """What the origin was begun with. Blocks. Raises InputError when it is not there, or has no such turn."""
    topic = settings.topic_names.events
    events = [event for event, _ in read_history(log, topic, origin)[1]]
    started = _started(events, origin)
    fork_point((*read_inherited(log, topic, events), *events), turn)
    return started


def _hindrance(log: Log, settings: Settings, agent: Agent, origin: str, turn: int) -> str:
    try:
        started = check_point(log, settings, origin, turn)
    except TracklogError as error:
        return str(error)
    return "" if started.agent == agent.name else f"it is of agent {started.agent!r}, not of {agent.name!r}"


def _started(events: Sequence[Event], origin: str) -> TaskStarted:
    started = started_of(events)
    if started is None:
        raise InputError(f"no trajectory {origin!r} that was started", hint="see: tracklog list")
    return started


async def _one(
    log: Log,
    settings: Settings,
    producer: EventProducer,
    agent: Agent,
    origin: str,
    asked: Asked,
    new_id: str | None,
) -> Forked:
    trajectory_id = new_id if new_id is not None else fork_id(origin, asked)
    try:
        setup = replace(await asyncio.to_thread(_setup, log, settings, agent, origin), drift=asked.drift)
        async with forked(
            producer,
            trajectory_id,
            origin=origin,
            turn=asked.turn,
            log=log,
            topics=settings.topic_names,
            setup=setup,
            changes=asked.changes,
            allow=asked.allow,
        ) as session:
            return Forked(trajectory_id, origin, await run_turns(session, agent, setup.task))
    except TracklogError as error:
        return Forked(trajectory_id, origin, "", str(error))
    except Exception as error:  # noqa: BLE001 - whatever the agent raises is the end of this fork, not of the others
        return Forked(trajectory_id, origin, "", f"{type(error).__name__}: {error}")


def _setup(log: Log, settings: Settings, agent: Agent, origin: str) -> Setup:
    """That of the origin, as far as it is recorded."""
    events = [event for event, _ in read_history(log, settings.topic_names.events, origin)[1]]
    started = _started(events, origin)
    blobs = blobs_of(settings)
    return agent.setup(
        whole_text(started.task, blobs),
        blobs,
        labels=started.labels,
        budgets=started.budgets,
        body_inline_bytes_max=settings.blobs.body_inline_bytes_max,
    )


def _model(agent: Agent, name: str) -> Model:
    named = getattr(agent.model, "named", None)
    if named is None:
        raise InputError(
            f"the model of agent {agent.name!r} cannot be had by another name", hint="give it a method named(name)"
        )
    model: Model = named(name)
    return model


def _text(path: str) -> str:
    try:
        return Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read: {error}") from error
