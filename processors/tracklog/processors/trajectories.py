"""The built-in processor: state, indexes and warm log of every trajectory, from one reading of the log."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from tracklog.infra.log.port import Record
from tracklog.infra.settings_sections import ProjectionSettings
from tracklog.processors.indexes import index_writes
from tracklog.processors.processor import Seen
from tracklog.processors.trajectory import Trajectory, judged, state_write, trajectory_from
from tracklog.processors.warm_log import WarmLogBounds, warm_log_writes
from tracklog.processors.writes import Write
from tracklog.schemas.head import Verdict
from tracklog.schemas.state import State

NAME: Final = "trajectories"
VERSION: Final = 4


class Trajectories:
    """See `Processor`. Settings bound what is kept of each trajectory; they change nothing that is derived."""

    name = NAME
    version = VERSION
    reads: frozenset[str] | None = None

    def __init__(self, settings: ProjectionSettings | None = None) -> None:
        given = settings if settings is not None else ProjectionSettings()
        self._bounds = WarmLogBounds(
            events_max=given.warm_log_events_max,
            bytes_max=given.warm_log_bytes_max,
            age_ms=round(given.warm_log_age_s * 1000),
        )
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
