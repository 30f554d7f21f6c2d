"""Which model last served each trajectory: a column of every row, for questions like cost per model."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from tracklog.infra.cold.columns import NO_MODEL

__all__ = ["TRAJECTORIES_MAX", "Models", "Seen", "served_by"]

TRAJECTORIES_MAX: Final = 100_000
"""Trajectories whose model an exporter remembers, some 30 MB; those not heard of for longest are looked up again."""
_REPLIED: Final = "ModelReplied"


class Seen(NamedTuple):
    """One event. `served`: the model that served it, None for an event that no model served."""

    trajectory_id: str
    seq: int
    served: str | None


def served_by(event_type: str, body: Mapping[str, Any] | None) -> str | None:
    """A reply counts as served by its own model."""
    return str(body["model_served"]) if event_type == _REPLIED and body and body.get("model_served") else None


class Models:
    """Of one partition. `look_up` asks the table for several trajectories at once."""

    def __init__(self, look_up: Callable[[set[str]], Mapping[str, str]]) -> None:
        self._look_up = look_up
        self._last: OrderedDict[str, str] = OrderedDict()
        self.kept_max = TRAJECTORIES_MAX
        """Of this partition."""

    def column(self, events: Sequence[Seen]) -> list[str]:
        """The model of each, of events in order."""
        last = self._last
        known = set(last)
        unknown: set[str] = set()
        for trajectory_id, seq, _ in events:
            if trajectory_id not in known:
                known.add(trajectory_id)
                if seq > 0:
                    unknown.add(trajectory_id)
        if unknown:
            last.update(self._look_up(unknown))
        models = [self._take(trajectory_id, served) for trajectory_id, _, served in events]
        for trajectory_id in {one.trajectory_id for one in events}:
            last.move_to_end(trajectory_id)
        while len(last) > self.kept_max:
            last.popitem(last=False)
        return models

    def _take(self, trajectory_id: str, served: str | None) -> str:
        if served is not None:
            self._last[trajectory_id] = served
            return served
        return self._last.setdefault(trajectory_id, NO_MODEL)
