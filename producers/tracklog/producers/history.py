"""The accepted events of one trajectory, read from the log."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tracklog.infra.log.partitioner import partition_of
from tracklog.infra.log.port import Log, Position
from tracklog.infra.log.ranges import read_range
from tracklog.producers.snapshot import Recall
from tracklog.schemas.codec import Event, decode_event
from tracklog.schemas.errors import ForeignRecord
from tracklog.schemas.events import TaskStarted
from tracklog.schemas.fold import fold
from tracklog.schemas.head import Verdict
from tracklog.schemas.state import State

Accepted = tuple[Event, Position]


class History(NamedTuple):
    """Of one trajectory. With a `recall` the events before it are left out on which nothing rests."""

    state: State
    accepted: list[Accepted]
    recall: Recall | None = None

    @property
    def events(self) -> list[Event]:
        return [event for event, _ in self.accepted]


def started_of(events: Iterable[Event]) -> TaskStarted | None:
    """What a trajectory with these events was started with, None before that."""
    return next((event.body for event in events if isinstance(event.body, TaskStarted)), None)


def read_history(log: Log, topic: str, trajectory_id: str) -> tuple[State, list[Accepted]]:
    """(state, accepted events with their positions), to the present end of the partition.

    Scans the partition: Kafka cannot read one key. Blocks; raises what reading a range raises.
    """
    key = trajectory_id.encode()
    partition = partition_of(key, log.partition_count(topic))
    bounds = log.bounds(topic, partition)
    state, found = State(trajectory_id), list[Accepted]()
    for record in read_range(log, topic, partition, bounds.first, bounds.end, bounds=bounds):
        if record.key != key:
            continue
        try:
            event = decode_event(record.key, record.value, record.headers)
        except ForeignRecord:
            continue  # nobody's event; whoever owns the partition quarantines it
        state, judgement = fold(state, event)
        if judgement.verdict is Verdict.ACCEPTED:
            found.append((event, Position(record.partition, record.offset, record.timestamp_ms)))
    return state, found
