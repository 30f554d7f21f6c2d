"""The side of a worker that owns partitions of the inbox: on the partition loop's thread (DESIGN §6).

What it reads it hands over to the worker's event loop, in order. Which trajectories there are is read from the events
partition of the same number when a partition is assigned; from then on the worker knows, because nobody else writes
them. The inbox is read from its first kept offset each time: what was taken is told by the trajectory's own events, so
no position is stored, and the group's commit is only a hint for people's tools.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from tracklog.infra.log.port import Log, Record
from tracklog.infra.log.ranges import read_range
from tracklog.producers.roster import Arrival, Standings, known_of
from tracklog.producers.spans import NOWHERE, Places, grown
from tracklog.schemas.codec import decode_event, decode_inbox
from tracklog.schemas.errors import ForeignRecord
from tracklog.schemas.fold import fold
from tracklog.schemas.state import State
from tracklog.schemas.topics import Topics

__all__ = ["Partitions", "standings"]


class Partitions:
    """An Owner for the partition loop. Its functions are called by the loop's thread; see `Worker`.

    `assigned` and `arrived` must not block; `revoked` returns when nothing of the partition is worked on any more.
    """

    def __init__(
        self,
        log: Log,
        topics: Topics,
        *,
        grace_us: int,
        assigned: Callable[[int, Standings], None],
        arrived: Callable[[int, list[tuple[str, Arrival]]], None],
        revoked: Callable[[int], None],
    ) -> None:
        self._log = log
        self._topics: Final = topics
        self._grace_us = grace_us
        self._assigned = assigned
        self._arrived = arrived
        self._revoked = revoked
        self.foreign_records = 0
        """Records in the inbox that are none; whoever owns the partition for quarantine keeps them."""

    def restore(self, partition: int) -> int:
        """Reads the events partition, to its present end; then the inbox from its first kept offset."""
        first = self._log.bounds(self._topics.inbox, partition).first
        self._assigned(partition, standings(self._log, self._topics.events, partition, grace_us=self._grace_us))
        return first

    def fold(self, partition: int, records: Sequence[Record], position: int) -> None:
        """Hands over what came."""
        arrivals = []
        for record in records:
            try:
                inbox = decode_inbox(record.key, record.value, record.headers)
            except ForeignRecord:
                self.foreign_records += 1
                continue
            arrivals.append((inbox.envelope.trajectory_id, Arrival(record, inbox)))
        if arrivals:
            self._arrived(partition, arrivals)

    def forget(self, partition: int) -> None:
        self._revoked(partition)


def standings(log: Log, topic: str, partition: int, *, grace_us: int) -> Standings:
    """Folds one partition to its present end. Blocks; raises what reading a range raises.

    What other drivers have is skipped by its key from its start on, and a trajectory that has ended is kept small.
    """
    bounds = log.bounds(topic, partition)
    states: dict[bytes, State] = {}
    places: dict[str, Places] = {}
    foreign: set[str] = set()
    skipped: set[bytes] = set()
    for record in read_range(log, topic, partition, bounds.first, bounds.end):
        key = record.key
        if key is None or key in skipped:
            continue
        try:
            event = decode_event(key, record.value, record.headers)
        except ForeignRecord:
            continue  # nobody's event; whoever owns the partition quarantines it
        trajectory_id = event.envelope.trajectory_id
        places[trajectory_id] = grown(places.get(trajectory_id, NOWHERE), record.offset)
        before = states.get(key)
        state, _ = fold(before if before is not None else State(trajectory_id), event)
        if known_of(state, grace_us=grace_us) is None:
            states.pop(key, None)
            skipped.add(key)
            foreign.add(trajectory_id)
            places.pop(trajectory_id)
            continue
        states[key] = _small(state) if state.ended and not (before is not None and before.ended) else state
    known = {}
    for state in states.values():
        one = known_of(state, grace_us=grace_us)
        if one is not None:
            known[state.trajectory_id] = one
    return Standings(known, foreign, places, bounds.end)


def _small(state: State) -> State:
    """An ended state without what only work needs. Which events are accepted does not rest on the windows of known
    hashes: they only name what is not."""
    return state._replace(context=(), tools={}, head=state.head._replace(recent=(), lost=()))
