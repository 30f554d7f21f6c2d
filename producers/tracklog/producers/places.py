"""Where an event stands in a record that begins in other trajectories. Pure.

A fork's record is what it inherits and then its own events. An own event has its seq as its place; inherited ones
have places below 0, the last one -1. In the log every event is named by trajectory and seq.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from tracklog.schemas.codec import Event
from tracklog.schemas.values import Ref

__all__ = ["Places"]


class Places:
    """Of one trajectory, with what it inherits, oldest first."""

    def __init__(self, trajectory_id: str, inherited: Sequence[Event] = ()) -> None:
        self.trajectory_id: Final = trajectory_id
        self.inherited: Final = tuple(inherited)
        self._refs = tuple(Ref(trajectory_id=one.envelope.trajectory_id, seq=one.envelope.seq) for one in inherited)
        first = -len(self._refs)
        self._places = {(ref.trajectory_id, ref.seq): first + n for n, ref in enumerate(self._refs)}

    def ref(self, place: int) -> Ref:
        """How the log names the event at a place."""
        return self._refs[place] if place < 0 else Ref(trajectory_id=self.trajectory_id, seq=place)

    def lamport(self, place: int) -> int:
        """The Lamport time that an event at a place adds to what this trajectory has seen itself."""
        return self.inherited[place].envelope.lamport if place < 0 else 0

    def last(self, refs: Iterable[Ref]) -> int | None:
        """The highest place that is named; None when they name other trajectories only."""
        found = [
            ref.seq if ref.trajectory_id == self.trajectory_id else self._places.get((ref.trajectory_id, ref.seq))
            for ref in refs
        ]
        return max((place for place in found if place is not None), default=None)
