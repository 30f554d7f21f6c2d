"""Where trajectories stand, as the log says, and whether something may be asked of them.

A request goes into the inbox, and whoever owns the trajectory then decides about it. Looking here first only keeps
people from asking in vain: what changes in between is answered by the owner, with a refusal in the record.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Set
from typing import Final, NamedTuple

from tracklog.infra.log.partitioner import partition_of
from tracklog.infra.log.port import Log, Record
from tracklog.infra.log.ranges import read_range
from tracklog.infra.log.trimmed import check_beginning
from tracklog.schemas.codec import decode_event, decode_inbox
from tracklog.schemas.errors import ForeignRecord, InputError, InvalidEvent, TrajectoryEnded, TrajectoryFaulty
from tracklog.schemas.events import OwnershipClaimed, TaskStarted
from tracklog.schemas.fold import fold
from tracklog.schemas.head import Verdict
from tracklog.schemas.lifecycle import STOPPED, TrajectoryStatus
from tracklog.schemas.state import State
from tracklog.schemas.topics import Topics
from tracklog.schemas.values import Driver, InboxId

__all__ = [
    "Whereabouts",
    "check_can_go_back",
    "check_free",
    "check_known",
    "check_open",
    "check_stopped",
    "check_there",
    "look_up",
]

RECORDED: Final = (Driver.IMPORT, Driver.INGEST)
"""Drivers of what was recorded elsewhere: nobody runs it."""


class Whereabouts(NamedTuple):
    """Of one trajectory. `submitted`: its task is in the inbox, and no worker has begun with it. `submit`: the
    record of the inbox by which its task came, where it came so and the log was read for it."""

    state: State
    submitted: bool = False
    submit: InboxId | None = None

    @property
    def words(self) -> str:
        """How it stands, for people."""
        state = self.state
        if state.parked:
            return f"parked: {state.parked}{f' ({state.reason})' if state.reason else ''}"
        return "submitted, and no worker has begun with it" if self.submitted else f"{state.summary}"


def look_up(log: Log, topics: Topics, trajectory_ids: Iterable[str]) -> dict[str, Whereabouts]:
    """Where each of them stands: one scan of every partition they lie in. Blocks; raises what reading a range raises.

    Raises TrajectoryTrimmed for one of which nothing is found in a log whose beginning was trimmed.
    """
    by_partition: dict[int, dict[bytes, State]] = defaultdict(dict)
    partitions = log.partition_count(topics.events)
    for trajectory_id in trajectory_ids:
        key = trajectory_id.encode()
        by_partition[partition_of(key, partitions)][key] = State(trajectory_id)
    found: dict[str, Whereabouts] = {}
    for partition, states in by_partition.items():
        begun = _fold(log, topics.events, partition, states)
        missing = {key for key, state in states.items() if state.task is None}
        submitted = _submitted(log, topics.inbox, partition, missing) if missing else {}
        for key, state in states.items():
            if not state.events and key not in submitted:
                check_beginning(log, topics.events, state.trajectory_id)
            found[state.trajectory_id] = Whereabouts(state, key in submitted, begun.get(key, submitted.get(key)))
    return found


def check_known(one: Whereabouts) -> None:
    """Raises InputError for a trajectory that is not there."""
    state = one.state
    if not state.events and not one.submitted:
        raise InputError(
            f"there is no trajectory {state.trajectory_id!r}, and no task for one", hint="see: tracklog list"
        )


def check_free(one: Whereabouts, source: str) -> None:
    """Whether the task of this source can begin it, or has. Raises InvalidEvent when another one has its id."""
    state = one.state
    taken = state.events > 0 and source not in state.inbox if one.submit is None else one.submit.source != source
    if taken:
        raise InvalidEvent(
            f"trajectory {state.trajectory_id!r} is there already, and was given another task",
            hint=f"give this one another id; see: tracklog show {state.trajectory_id}",
        )


def check_there(one: Whereabouts) -> None:
    """Whether anything can be written of it. Raises InputError for one that is not there, TrajectoryFaulty."""
    check_known(one)
    state = one.state
    if state.fault is not None:
        raise TrajectoryFaulty(
            f"the log of trajectory {state.trajectory_id!r} is not whole: event {state.fault.seq} is "
            f"{state.fault.verdict}; nobody can go on with it",
            hint=f"look at it with: tracklog verify {state.trajectory_id}; fork it before that event",
        )


def check_open(one: Whereabouts) -> None:
    """Whether anything can still be said to it.

    Raises InputError for one that is not there or was recorded elsewhere, TrajectoryEnded, TrajectoryFaulty.
    """
    check_there(one)
    state = one.state
    if state.task is not None and state.task.driver in RECORDED:
        raise InvalidEvent(
            f"trajectory {state.trajectory_id!r} was recorded elsewhere; nobody runs it",
            hint="fork it to go on from a turn of it",
        )
    if state.ended:
        raise TrajectoryEnded(
            f"trajectory {state.trajectory_id!r} has ended: {state.status.value}",
            hint="give new work a trajectory of its own, or go on from a turn of it: tracklog fork",
        )


def check_stopped(one: Whereabouts) -> None:
    """Whether it waits for somebody to say that it may go on. Raises as `check_open`, and InvalidEvent."""
    check_open(one)
    state = one.state
    if state.task is not None and state.task.driver is not Driver.WORKER:
        raise InvalidEvent(
            f"trajectory {state.trajectory_id!r} is run by the driver {state.task.driver.value!r}, not by workers",
            hint="open its session again: that goes on with it",
        )
    if state.parked not in STOPPED:
        raise InvalidEvent(
            f"trajectory {state.trajectory_id!r} was not stopped: it is {one.words}",
            hint=f"see: tracklog show {state.trajectory_id}",
        )


def check_can_go_back(one: Whereabouts) -> None:
    """Whether another trajectory may go on from a turn of it: it was stopped, or ended otherwise than as completed.

    Raises as `check_stopped`, and InvalidEvent for one with a call that may have happened and has no outcome.
    """
    state = one.state
    if state.status not in (TrajectoryStatus.FAILED, TrajectoryStatus.CANCELLED):
        check_stopped(one)
    elif state.task is not None and state.task.driver is not Driver.WORKER:
        raise InvalidEvent(
            f"trajectory {state.trajectory_id!r} is run by the driver {state.task.driver.value!r}, not by workers",
            hint="fork it: tracklog fork --turn",
        )
    if state.open_intents:
        raise InvalidEvent(
            f"call {next(iter(state.open_intents))!r} of trajectory {state.trajectory_id!r} may have happened and has "
            "no outcome",
            hint=f"let it go on, so that the call is settled: tracklog retry {state.trajectory_id}",
        )


def _fold(log: Log, topic: str, partition: int, states: dict[bytes, State]) -> dict[bytes, InboxId]:
    """By which records of the inbox they were begun."""
    begun = dict[bytes, InboxId]()
    for record in _records(log, topic, partition, states):
        try:
            event = decode_event(record.key, record.value, record.headers)
        except ForeignRecord:
            continue  # nobody's event
        assert record.key is not None
        states[record.key], judgement = fold(states[record.key], event)
        own = event.envelope.inbox_id
        is_begun = judgement.verdict is Verdict.ACCEPTED and isinstance(event.body, TaskStarted | OwnershipClaimed)
        if own is not None and is_begun:
            begun.setdefault(record.key, own)
    return begun


def _submitted(log: Log, topic: str, partition: int, keys: Set[bytes]) -> dict[bytes, InboxId]:
    """The first task that was given to each."""
    found = dict[bytes, InboxId]()
    for record in _records(log, topic, partition, keys):
        try:
            read = decode_inbox(record.key, record.value, record.headers)
        except ForeignRecord:
            continue
        if read.name == "Submit" and record.key is not None:
            found.setdefault(record.key, read.envelope.inbox_id)
    return found


def _records(log: Log, topic: str, partition: int, keys: Set[bytes] | Mapping[bytes, object]) -> Iterable[Record]:
    bounds = log.bounds(topic, partition)
    records = read_range(log, topic, partition, bounds.first, bounds.end, bounds=bounds)
    return (record for record in records if record.key in keys)
