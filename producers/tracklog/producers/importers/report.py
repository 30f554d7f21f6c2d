"""What an import has done so far, or in the end."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import islice
from typing import NamedTuple, TypeVar

from tracklog.producers.importers.run import BadRun

T = TypeVar("T")


class SoFar(Collection[T]):
    """What a list that only grows holds at this moment: costs nothing, however long the list."""

    def __init__(self, items: list[T]) -> None:
        self._items, self._length = items, len(items)

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[T]:
        return islice(self._items, self._length)

    def __contains__(self, item: object) -> bool:
        return any(item == one for one in self)


class Conflict(NamedTuple):
    """A run that cannot become this trajectory, and why."""

    trajectory_id: str
    reason: str

    def __str__(self) -> str:
        return f"{self.trajectory_id}: {self.reason}"


class ImportReport(NamedTuple):
    """Counts of runs, and of events that are durable in the log.

    `new` were not in before, `resumed` were in part, `already` were whole and nothing was appended. `taken`
    are the trajectories that another importer is writing at this moment; `refused` could not be read, or
    hold more than can be stored; `conflicts` could not be written.
    """

    new: int = 0
    resumed: int = 0
    already: int = 0
    events: int = 0
    taken: Collection[str] = ()
    refused: Collection[BadRun] = ()
    conflicts: Collection[Conflict] = ()

    @property
    def runs(self) -> int:
        """Runs done with, one way or another."""
        done = self.new + self.resumed + self.already
        return done + len(self.taken) + len(self.refused) + len(self.conflicts)

    @property
    def exit_code(self) -> int:
        """1 when any run was refused or in conflict: nobody should take the import for complete."""
        return 1 if self.refused or self.conflicts else 0
