"""The members of a swarm: those whose task names it, and the one that it is named after.

From Redis by an index; from the log by two scans, one for the starts and one for the members.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from tracklog.consumers.read import AsOf, Filter, Reader
from tracklog.consumers.swarm.waits import Swarm, swarm_of
from tracklog.infra.log.partitioner import partition_of
from tracklog.infra.log.port import Log
from tracklog.infra.log.ranges import read_range
from tracklog.producers.history import Folded, read_histories
from tracklog.schemas.catalog import HEADER_TYPE
from tracklog.schemas.codec import decode_event, decode_inbox
from tracklog.schemas.errors import ForeignRecord, InputError
from tracklog.schemas.events import TaskStarted
from tracklog.schemas.state import State
from tracklog.schemas.topics import Topics

__all__ = ["histories_of", "members_in_redis", "swarm_in_log"]

PAGE: Final = 500
MEMBERS_MAX: Final = 10_000
"""Runs of one swarm that are looked at."""


async def members_in_redis(reader: Reader, trajectory_id: str) -> tuple[str, dict[str, State], AsOf]:
    """(the swarm's name, its members, how far that is folded). Raises InputError for a swarm that is not there,
    StoreError."""
    as_of = await reader.as_of()
    own = (await reader.state(trajectory_id)).value
    name = _name(trajectory_id, None if own is None else own.state)
    states, cursor = dict[str, State](), None
    while True:
        page = (await reader.states(Filter(swarm=name), cursor=cursor, limit=PAGE)).value
        states.update((one.trajectory_id, one.state) for one in page.trajectories)
        if page.next is None or len(states) >= MEMBERS_MAX:
            break
        cursor = page.next
    first = (await reader.state(name)).value
    if first is not None:
        states[name] = first.state
    return name, _checked(trajectory_id, states), as_of


def histories_of(log: Log, topic: str, trajectory_id: str) -> tuple[str, dict[str, Folded]]:
    """(the swarm's name, state and accepted events of its members), read from the log. Blocks. Raises InputError."""
    swarms = dict(_starts(log, topic))
    if trajectory_id not in swarms and trajectory_id not in swarms.values():
        _checked(trajectory_id, {})
    name = swarms.get(trajectory_id) or trajectory_id
    members = sorted({one for one, swarm in swarms.items() if swarm == name} | ({name} & swarms.keys()))
    return name, read_histories(log, topic, members[:MEMBERS_MAX])


def swarm_in_log(log: Log, topics: Topics, trajectory_id: str) -> Swarm:
    """The swarm of a trajectory, or of that name, as the log has it. Blocks. Raises InputError."""
    name, histories = histories_of(log, topics.events, trajectory_id)
    states = {one: state for one, (state, _) in histories.items()}
    found = swarm_of(name, states)
    if found.sound:
        return found
    stuck = {*found.orphans, *found.held_up, *(one for circle in found.deadlocks for one in circle)}
    return swarm_of(name, states, mail_of(log, topics.inbox, {one: states[one] for one in stuck}))


def mail_of(log: Log, topic: str, states: Mapping[str, State]) -> frozenset[str]:
    """Those of these runs for whom a record lies in the inbox that they have not taken. Blocks."""
    found = set[str]()
    count = log.partition_count(topic)
    places: dict[int, list[State]] = {}
    for one, state in states.items():
        places.setdefault(partition_of(one.encode(), count), []).append(state)
    for partition, own in sorted(places.items()):
        bounds = log.bounds(topic, partition)
        keys = {state.trajectory_id.encode(): state for state in own}
        first = max(bounds.first, min((state.inbox_position or 0) for state in own))
        for record in read_range(log, topic, partition, first, bounds.end, bounds=bounds):
            kept = keys.get(record.key or b"")
            if kept is None:
                continue
            try:
                envelope = decode_inbox(record.key, record.value, record.headers).envelope
            except ForeignRecord:
                continue  # it is nobody's to take
            if envelope.inbox_id.seq > kept.inbox.get(envelope.inbox_id.source, -1):
                found.add(kept.trajectory_id)
    return frozenset(found)


def _starts(log: Log, topic: str) -> Iterable[tuple[str, str | None]]:
    for partition in range(log.partition_count(topic)):
        bounds = log.bounds(topic, partition)
        for record in read_range(log, topic, partition, bounds.first, bounds.end, bounds=bounds):
            if (HEADER_TYPE, b"TaskStarted") not in record.headers:
                continue
            try:
                event = decode_event(record.key, record.value, record.headers)
            except ForeignRecord:
                continue
            if isinstance(event.body, TaskStarted):
                yield event.envelope.trajectory_id, event.body.swarm


def _name(trajectory_id: str, state: State | None) -> str:
    task = None if state is None else state.task
    return trajectory_id if task is None or task.swarm is None else task.swarm


def _checked(trajectory_id: str, states: dict[str, State]) -> dict[str, State]:
    if not states:
        raise InputError(f"no swarm {trajectory_id!r}, and no trajectory of that id", hint="see: tracklog list")
    return states
