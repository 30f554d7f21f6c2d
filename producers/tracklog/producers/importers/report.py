"""What an import has done so far, or in the end."""

from __future__ import annotations

from typing import NamedTuple

from tracklog.producers.importers.run import BadRun


class Conflict(NamedTuple):
    """A run that cannot become this trajectory, and why."""

    trajectory_id: str
    reason: str

    def __str__(self) -> str:
        return f"{self.trajectory_id}: {self.reason}"


class ImportReport(NamedTuple):
    """Counts of runs, and of events that are durable in the log.

    `new` were not in before, `resumed` were in part, `already` were whole and nothing was appended. `taken`
    are the trajectories that another importer is writing at this moment; `refused` could not be read;
    `conflicts` could not be written.
    """

    new: int = 0
    resumed: int = 0
    already: int = 0
    events: int = 0
    taken: tuple[str, ...] = ()
    refused: tuple[BadRun, ...] = ()
    conflicts: tuple[Conflict, ...] = ()

    @property
    def runs(self) -> int:
        """Runs done with, one way or another."""
        done = self.new + self.resumed + self.already
        return done + len(self.taken) + len(self.refused) + len(self.conflicts)

    @property
    def exit_code(self) -> int:
        """1 when any run was refused or in conflict: nobody should take the import for complete."""
        return 1 if self.refused or self.conflicts else 0
