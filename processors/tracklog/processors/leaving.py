"""Ended trajectories leave the store: by the time of the log, and the oldest ones of a tenant that has too many.

    ended, ended:TENANT   trajectories that have ended, ranked by their last append: all, and those of one tenant
    h:TRAJECTORY          hash `at`, of one that has left: its place, by which what still comes is told

All of it goes by the order of the log, never by batches or clocks: a fold from the beginning comes to the same keys.
One that has left stays out; what still comes for it (an annotation, a former owner's record) only moves its place. So
nothing of it is taken for the beginning of another.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, NamedTuple, TypeVar

from tracklog.processors.place import Place
from tracklog.processors.writes import Write

__all__ = ["ENDED", "LEAVE_MAX", "Crowd", "Ended", "Leaving", "LeavingBounds", "ended_keys"]

S = TypeVar("S")

ENDED: Final = "ended"
LEAVE_MAX: Final = 1000
"""Trajectories that leave in one step because of their age. Is there more, another step follows at once."""


class LeavingBounds(NamedTuple):
    """`age_ms`: how long after its last append one that has ended stays. `per_tenant_max`: ended ones of a tenant in
    one partition. None: no bound."""

    age_ms: int | None = None
    per_tenant_max: int | None = None


class Ended(NamedTuple):
    """Of a trajectory that has ended. `last_ms`: append time of its last record; `place`: how far it is folded."""

    tenant: str
    last_ms: int
    place: Place


@dataclass(frozen=True, slots=True)
class Leaving(Generic[S]):
    """How states of one processor leave. `ended` gives None for one that stays; `forget` what goes with a state that
    the store holds."""

    bounds: LeavingBounds
    ended: Callable[[S], Ended | None]
    forget: Callable[[S], Iterable[Write]]

    def is_due(self, one: Ended, now_ms: int) -> bool:
        age_ms = self.bounds.age_ms
        return age_ms is not None and one.last_ms + age_ms <= now_ms


def ended_keys(tenant: str) -> list[str]:
    return [ENDED, f"{ENDED}:{tenant}"]


@dataclass(slots=True)
class Crowd:
    """The ended trajectories of one tenant within a batch. `count`: how many; `oldest`: those of the store with the
    lowest times, as many as can leave in the batch."""

    count: int
    oldest: list[tuple[int, str]]
    _moved: dict[str, int] = field(default_factory=dict)
    _gone: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, count: int, oldest: Sequence[tuple[int, str]] = ()) -> Crowd:
        held = list(oldest)
        heapq.heapify(held)
        return cls(count, held)

    def put(self, trajectory_id: str, last_ms: int, *, new: bool) -> None:
        """One that has ended now, or has another last append."""
        self.count += new
        self._moved[trajectory_id] = last_ms
        heapq.heappush(self.oldest, (last_ms, trajectory_id))

    def take(self, trajectory_id: str) -> None:
        """One that leaves."""
        self.count -= 1
        self._gone.add(trajectory_id)

    def too_many(self, count_max: int) -> list[str]:
        """Takes the oldest until no more than so many are left."""
        found = []
        while self.count > count_max and self.oldest:
            last_ms, trajectory_id = heapq.heappop(self.oldest)
            if trajectory_id not in self._gone and self._moved.get(trajectory_id, last_ms) == last_ms:
                self.take(trajectory_id)
                found.append(trajectory_id)
        return found
