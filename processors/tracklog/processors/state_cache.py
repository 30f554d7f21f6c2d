"""States in memory: the least recently used leave, and are read back from the store when they are needed."""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

S = TypeVar("S")


class StateCache(Generic[S]):
    """By partition and trajectory. Holds only what the store holds, so that anything may leave at any time."""

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self._states: OrderedDict[tuple[int, str], S] = OrderedDict()

    def __len__(self) -> int:
        return len(self._states)

    def get(self, partition: int, trajectory_id: str) -> S | None:
        return self._states.get((partition, trajectory_id))

    def put(self, partition: int, trajectory_id: str, state: S) -> None:
        key = (partition, trajectory_id)
        self._states[key] = state
        self._states.move_to_end(key)
        if len(self._states) > self._count_max:
            self._states.popitem(last=False)

    def drop(self, partition: int, trajectory_id: str) -> None:
        self._states.pop((partition, trajectory_id), None)

    def forget(self, partition: int) -> None:
        for key in [key for key in self._states if key[0] == partition]:
            del self._states[key]
