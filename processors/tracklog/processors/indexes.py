"""The indexes: sorted sets of trajectory ids by tenant, status, tool, model, swarm, label and time (DESIGN §10).

Every set ranks by the time of the last append in milliseconds, so lists page newest first with the stable cursor
(time, id), and a trajectory has the same score in all of its sets. There is one of each per partition; readers
merge them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tracklog.processors.trajectory import Trajectory
from tracklog.processors.writes import Rank, Unrank

BY_TIME: Final = "by:time"


def by_tenant(tenant: str) -> str:
    return f"by:tenant:{tenant}"


def by_status(status: str) -> str:
    return f"by:status:{status}"


def by_tool(tool: str) -> str:
    return f"by:tool:{tool}"


def by_model(model: str) -> str:
    return f"by:model:{model}"


def by_swarm(name: str) -> str:
    return f"by:swarm:{name}"


def by_label(name: str, value: str) -> str:
    return f"by:label:{name}={value}"


def indexes_of(trajectory: Trajectory) -> list[str]:
    """The sets a trajectory is in, by its present state. Models: as asked for and as served."""
    state = trajectory.state
    keys = [BY_TIME, by_status(trajectory.status)]
    if state.tenant:
        keys.append(by_tenant(state.tenant))
    keys.extend(by_tool(tool) for tool in state.tools)
    if state.model_served:
        keys.append(by_model(state.model_served))
    if state.task is not None:
        if state.task.model and state.task.model != state.model_served:
            keys.append(by_model(state.task.model))
        if state.task.swarm is not None:
            keys.append(by_swarm(state.task.swarm))
        keys.extend(by_label(name, value) for name, value in state.task.labels.items())
    return keys


def index_writes(before: Trajectory | None, after: Trajectory) -> Iterator[Rank | Unrank]:
    keys = indexes_of(after)
    yield Rank(keys, after.trajectory_id, after.last_ms)
    if before is None:
        return
    left = set(indexes_of(before)).difference(keys)
    if left:
        yield Unrank(sorted(left), after.trajectory_id)
