"""What a partition holds, as far as trimming asks: each trajectory with its state and where its records lie.

The ends of ledger and inbox are taken before the events are read: so every entry below them belongs to an intent, and
every record to a trajectory, that is known or newer than what is trimmed (DESIGN §8 rule 4).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tracklog.infra.log.port import Bounds, Log
from tracklog.infra.log.ranges import read_range
from tracklog.schemas.codec import decode_event
from tracklog.schemas.errors import ForeignRecord
from tracklog.schemas.fold import fold
from tracklog.schemas.state import State
from tracklog.schemas.topics import Topics

__all__ = ["Lying", "Survey", "survey"]


class Lying(NamedTuple):
    """A trajectory: `first` is the offset of its first record of all, `beginning` that of the last record which says
    that it is its first event, whatever the verdict."""

    state: State
    first: int
    beginning: int

    @property
    def over(self) -> bool:
        """Whether nothing of it is needed to go on: it has ended, and its history holds no fault. Records under a
        name of which nothing was ever accepted are nobody's work."""
        if self.state.fault is not None:
            return False
        return self.state.ended or not self.state.events


class Survey(NamedTuple):
    """Of one partition number. `events`, `inbox` and `attempts` are what the log itself keeps: `first` as found, `end`
    as it was asked for before the events were read."""

    partition: int
    trajectories: Mapping[str, Lying]
    events: Bounds
    inbox: Bounds
    attempts: Bounds


def survey(log: Log, hot: Log, topics: Topics, partition: int) -> Survey:
    """Folds the events of a partition from their beginning, in the cold tier too. `hot` is the log alone. Blocks.

    Holds one state a trajectory: those that are over without what only work needs.
    """
    attempts = hot.bounds(topics.attempts, partition)
    inbox = hot.bounds(topics.inbox, partition)
    kept = hot.bounds(topics.events, partition)
    bounds = log.bounds(topics.events, partition)
    found: dict[str, Lying] = {}
    for record in read_range(log, topics.events, partition, bounds.first, bounds.end, bounds=bounds):
        try:
            event = decode_event(record.key, record.value, record.headers)
        except ForeignRecord:
            continue  # nobody's event; whoever owns the partition quarantines it
        name = event.envelope.trajectory_id
        before = found.get(name)
        state, _ = fold(before.state if before is not None else State(name), event)
        if state.ended and not (before is not None and before.state.ended):
            state = state._replace(context=(), tools={})
        first = before.first if before is not None else record.offset
        beginning = record.offset if event.envelope.seq == 0 or before is None else before.beginning
        found[name] = Lying(state, first, beginning)
    return Survey(partition, found, Bounds(kept.first, bounds.end), inbox, attempts)
