"""The events of one trajectory that are under way: appended, not yet known to be durable."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from tracklog.infra.log.port import Position
from tracklog.schemas.codec import Encoded
from tracklog.schemas.errors import AppendError

E = TypeVar("E", bound=AppendError)
HandOver = Callable[["Entry", AppendError | None], None]
"""Takes a report from the log's thread to the loop's."""


@dataclass(slots=True, eq=False)
class Entry:
    """One appended event. `reported` counts for the last time it was sent."""

    pipeline: Pipeline
    seq: int
    epoch: int
    encoded: Encoded
    hand_over: HandOver
    reported: bool = False
    error: AppendError | None = None

    def delivered(self, position: Position | None, error: AppendError | None) -> None:
        """The log's report, on the log's thread."""
        self.hand_over(self, error)

    def heard(self, error: AppendError | None) -> None:
        """The same, on the loop's thread."""
        self.pipeline.report(self, error)


@dataclass(slots=True, eq=False)
class Pipeline:
    """Entries in order; the front ones leave as soon as everything up to them is acknowledged.

    After an error nothing leaves any more until the owner has looked at the log: an acknowledgement
    behind a lost record is worth nothing [W05].
    """

    entries: deque[Entry] = field(default_factory=deque)
    troubled: bool = False
    moved: asyncio.Event = field(default_factory=asyncio.Event)

    def report(self, entry: Entry, error: AppendError | None) -> None:
        """Takes a delivery report, on the loop's thread."""
        entry.reported = True
        entry.error = error
        if error is not None:
            self.troubled = True
        entries = self.entries
        while entries and not self.troubled and entries[0].reported:
            entries.popleft()
        self.moved.set()

    def abandon(self, entry: Entry) -> None:
        """An entry whose sending was cancelled: it may never have been queued, so the log must be asked."""
        entry.reported = True
        self.troubled = True
        self.moved.set()

    def first_error(self, kind: type[E]) -> E | None:
        """The first report of this kind among what is under way."""
        return next((entry.error for entry in self.entries if isinstance(entry.error, kind)), None)

    @property
    def settled(self) -> bool:
        """True when everything appended is acknowledged."""
        return not self.entries

    @property
    def all_reported(self) -> bool:
        return all(entry.reported for entry in self.entries)

    async def until_moved(self) -> None:
        """Waits for the next report; every append ends in one, within the log's own bound."""
        self.moved.clear()
        await self.moved.wait()
