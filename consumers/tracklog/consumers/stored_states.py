"""The states that the projection keeps in Redis, as something to compare the log with."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Final

from tracklog.consumers.read import Reader
from tracklog.schemas.state import State

PAGE: Final = 500


class StoredStates:
    """Reads in an event loop of its own, that of `runner`, for those who have none."""

    def __init__(self, reader: Reader, runner: asyncio.Runner) -> None:
        self._reader = reader
        self._runner = runner

    def state(self, trajectory_id: str) -> State | None:
        found = self._runner.run(self._reader.state(trajectory_id)).value
        return None if found is None else found.state

    def states(self) -> Iterator[State]:
        cursor = None
        while True:
            page = self._runner.run(self._reader.states(cursor=cursor, limit=PAGE)).value
            for trajectory in page.trajectories:
                yield trajectory.state
            if page.next is None:
                return
            cursor = page.next
