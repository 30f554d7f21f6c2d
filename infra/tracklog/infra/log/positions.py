"""Where a reader of an embedded log stands in each partition; partitions come and go with a group's assignment."""

from __future__ import annotations

from collections.abc import Callable, Mapping


class Positions:
    """Base of the embedded readers. `check` raises for a partition that does not exist."""

    def __init__(self, starts: Mapping[int, int], check: Callable[[int], object]) -> None:
        self._check = check
        self._positions: dict[int, int] = {}
        self._paused: set[int] = set()
        for partition, offset in starts.items():
            self.assign(partition, offset)

    def position(self, partition: int) -> int:
        return self._positions[partition]

    def seek(self, partition: int, offset: int) -> None:
        if partition in self._positions:
            self._positions[partition] = offset

    def assign(self, partition: int, offset: int) -> None:
        self._check(partition)
        self._positions[partition] = offset

    def unassign(self, partition: int) -> None:
        self._positions.pop(partition, None)
        self._paused.discard(partition)

    def pause(self, partition: int) -> None:
        self._paused.add(partition)

    def resume(self, partition: int) -> None:
        self._paused.discard(partition)

    def close(self) -> None:
        self._positions.clear()

    def _active(self) -> list[int]:
        return [p for p in self._positions if p not in self._paused]
