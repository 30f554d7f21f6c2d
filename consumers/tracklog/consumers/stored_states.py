"""The states that the projection keeps in Redis, as something to compare the log with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tracklog.consumers.read import Reader
from tracklog.schemas.state import State

PAGE: Final = 500


class StoredStates:
    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def state(self, trajectory_id: str) -> State | None:
        found = self._reader.state(trajectory_id)
        return None if found is None else found.state

    def states(self) -> Iterator[State]:
        cursor = None
        while True:
            page = self._reader.states(cursor=cursor, limit=PAGE)
            for trajectory in page.trajectories:
                yield trajectory.state
            if page.next is None:
                return
            cursor = page.next
