"""The state of each trajectory, as the log folds it, with the facts that people look for (DESIGN §10)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from tracklog.infra.log.port import Record
from tracklog.processors.processor import Seen
from tracklog.processors.writes import Scalar, SetFields, own_fields
from tracklog.schemas.fold import fold
from tracklog.schemas.head import Verdict
from tracklog.schemas.lifecycle import STOPPED, TrajectoryStatus
from tracklog.schemas.state import State, dump_state, load_state

STATE_FIELD: Final = b"state"
_STOPPED: Final = sorted(word.value for word in STOPPED)
STATUSES: Final[tuple[str, ...]] = tuple(
    dict.fromkeys((*(status.value for status in TrajectoryStatus), *_STOPPED, "waiting", "in doubt", "faulty"))
)
"""Every word that `State.summary` can say."""


class Trajectory(NamedTuple):
    """A trajectory in the log: its state, and where and when its records lie.

    Offsets and append times (milliseconds since 1970) are of all its records, whatever their verdict; -1 before
    the first. `state` alone is content: the same on any cluster.
    """

    state: State
    partition: int = -1
    first_offset: int = -1
    last_offset: int = -1
    first_ms: int = -1
    last_ms: int = -1

    @property
    def trajectory_id(self) -> str:
        return self.state.trajectory_id

    @property
    def status(self) -> str:
        return self.state.summary

    @property
    def agent(self) -> str:
        return self.state.task.agent if self.state.task is not None else ""

    @property
    def driver(self) -> str:
        return self.state.task.driver.value if self.state.task is not None else ""

    @property
    def model(self) -> str:
        """As served; as asked for before the first reply."""
        if self.state.model_served or self.state.task is None:
            return self.state.model_served
        return self.state.task.model


def see(trajectory: Trajectory, seen: Seen) -> Trajectory:
    """The trajectory after one more record."""
    return judged(trajectory, seen)[0]


def judged(trajectory: Trajectory, seen: Seen) -> tuple[Trajectory, Verdict]:
    """The same, and what the log says of the record."""
    state, judgement = fold(trajectory.state, seen.event)
    return _placed(trajectory, state, seen.record), judgement.verdict


def _placed(trajectory: Trajectory, state: State, record: Record) -> Trajectory:
    if trajectory.first_offset < 0:
        return Trajectory(
            state, record.partition, record.offset, record.offset, record.timestamp_ms, record.timestamp_ms
        )
    last_ms = max(trajectory.last_ms, record.timestamp_ms)
    return Trajectory(
        state,
        trajectory.partition,
        trajectory.first_offset,
        record.offset,
        trajectory.first_ms,
        last_ms,
    )


def fields_of(trajectory: Trajectory) -> dict[str, Scalar]:
    """What Redis shows of a trajectory: its state as `dump_state` writes it, and the facts in plain words."""
    state = trajectory.state
    return {
        "state": dump_state(state),
        "status": trajectory.status,
        "tenant": state.tenant,
        "driver": trajectory.driver,
        "agent": trajectory.agent,
        "model": trajectory.model,
        "turn": state.turn,
        "events": state.events,
        "cost_micro_usd": state.spent.cost_micro_usd,
        "partition": trajectory.partition,
        "first_offset": trajectory.first_offset,
        "last_offset": trajectory.last_offset,
        "first_ms": trajectory.first_ms,
        "last_ms": trajectory.last_ms,
    }


def trajectory_from(fields: Mapping[bytes, bytes]) -> Trajectory:
    """The inverse of `fields_of`."""
    return Trajectory(
        load_state(fields[STATE_FIELD]),
        int(fields[b"partition"]),
        int(fields[b"first_offset"]),
        int(fields[b"last_offset"]),
        int(fields[b"first_ms"]),
        int(fields[b"last_ms"]),
    )


def state_write(trajectory: Trajectory) -> SetFields:
    return SetFields(own_fields(trajectory.trajectory_id), fields_of(trajectory))
