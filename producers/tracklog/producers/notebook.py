"""What a session must know of again when it goes on from a checkpoint, and when one is taken (see `checkpoints`)."""

from __future__ import annotations

from typing import Any, Final

from tracklog.producers.checkpoints import Checkpoints
from tracklog.producers.record import Record
from tracklog.producers.repeats import Repeated
from tracklog.producers.spend import Spend

__all__ = ["Notebook"]


class Notebook:
    """Of one session. One that takes no checkpoints, as in a replay, has one too; nothing is kept in it."""

    def __init__(self, record: Record, checkpoints: Checkpoints | None) -> None:
        self.checkpoints: Final = checkpoints
        self.journal: Final = None if checkpoints is None else checkpoints.journal
        self._record = record

    def note(self, *row: str | int) -> None:
        """A row of the journal."""
        if self.journal is not None:
            self.journal.add(*row)

    async def finish_turn(self, memory: Any, replies: int, spent: Spend, repeated: Repeated) -> None:
        """A turn of the program is over, and this is what it left; a checkpoint may be due. Raises InvalidEvent."""
        points = self.checkpoints
        if points is None or not points.remembers:
            return
        with self._record.strand.ordered("the end of a turn"):
            points.finished(memory, replies, spent, repeated)
            await points.when_due()

    async def at_context(self) -> None:
        """Before a context of a program that does not say when its turns end: a checkpoint may be due."""
        if self.checkpoints is not None and not self.checkpoints.remembers:
            await self.checkpoints.when_due()

    async def at_end(self) -> None:
        """Before the end: the files as the trajectory leaves them."""
        if self.checkpoints is not None and self.checkpoints.workspace is not None:
            await self.checkpoint()

    async def checkpoint(self) -> bool:
        """Takes one now; False when there is nothing new to keep, as inside the record."""
        if self.checkpoints is None or not self._record.cursor.done:
            return False
        return await self.checkpoints.take()
