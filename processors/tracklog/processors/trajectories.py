"""The built-in processor: state, indexes and warm log of every trajectory, from one reading of the log."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from tracklog.infra.log.port import Record
from tracklog.infra.settings_sections import ProjectionSettings
from tracklog.processors.indexes import index_writes, indexes_of
from tracklog.processors.leaving import Ended, Leaving, LeavingBounds
from tracklog.processors.place import Place
from tracklog.processors.processor import Seen
from tracklog.processors.trajectory import Trajectory, judged, state_write, trajectory_from
from tracklog.processors.warm_log import WarmLogBounds, clearing, offsets_key, warm_log_writes
from tracklog.processors.writes import Remove, Unrank, Write, own_fields
from tracklog.schemas.head import Verdict
from tracklog.schemas.state import State

NAME: Final = "trajectories"
VERSION: Final = 5


class Trajectories:
    """See `RecordProcessor`. Settings bound what is kept of each trajectory and how long ended ones are; they change
    nothing of what is derived of those that are there."""

    name = NAME
    version = VERSION
    reads: frozenset[str] | None = None

    def __init__(self, settings: ProjectionSettings | None = None) -> None:
        given = settings if settings is not None else ProjectionSettings()
        self._bounds = WarmLogBounds(
            events_max=given.warm_log_events_max,
            bytes_max=given.warm_log_bytes_max,
            age_ms=round(given.warm_log_age_s * 1000),
            tenant_bytes_max=given.warm_log_tenant_bytes_max,
        )
        self.leaving = Leaving(_bounds_of(given), _ended, _forget)
        self.told: Callable[[Trajectory, Seen, Verdict], object] | None = None
        """Hears of each record that is folded, what was before it, and its verdict; of some twice."""

    def start(self, trajectory_id: str) -> Trajectory:
        return Trajectory(State(trajectory_id))

    def apply(self, state: Trajectory, seen: Seen) -> Trajectory:
        after, verdict = judged(state, seen)
        if self.told is not None:
            self.told(state, seen, verdict)
        return after

    def load(self, trajectory_id: str, fields: Mapping[bytes, bytes]) -> Trajectory:
        return trajectory_from(fields)

    def writes(self, before: Trajectory | None, after: Trajectory, records: Sequence[Record]) -> Iterator[Write]:
        yield state_write(after)
        yield from index_writes(before, after)
        yield from warm_log_writes(before, after, records, self._bounds)


def _bounds_of(given: ProjectionSettings) -> LeavingBounds:
    age_ms = round(given.ended_age_s * 1000) if given.ended_age_s > 0 else None
    return LeavingBounds(age_ms, given.ended_per_tenant_max if given.ended_per_tenant_max > 0 else None)


def _ended(one: Trajectory) -> Ended | None:
    state = one.state
    if not state.ended:
        return None
    return Ended(state.tenant, one.last_ms, Place(state.head.epoch, state.head.seq, state.head.hash))


def _forget(one: Trajectory) -> Iterator[Write]:
    name = one.trajectory_id
    yield Remove([own_fields(name), offsets_key(name)])
    yield clearing(one)
    yield Unrank(indexes_of(one), name)
