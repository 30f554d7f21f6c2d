"""What a bundle folds: each member has its own keys, its own position and its own guard in the store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from tracklog.infra.log.port import Record
from tracklog.processors.place import Step


class Folding(Protocol):
    """One batch of one member. Nothing is stored before `commit`; one that is dropped has not happened."""

    def see(self, step: Step) -> None:
        """One more record of the batch, in the order of the log. One below the member's position is passed over."""

    def commit(self, position: int) -> Callable[[], None]:
        """Gives states and position to the store, in one step. What is given back waits until they are there, and
        only then remembers them. See `Owner.fold` for what is raised."""


class Member(Protocol):
    """See `Owner`, whose parts these are. `reads`: names of the event types it must be shown decoded, None for all."""

    @property
    def reads(self) -> frozenset[str] | None: ...

    def restore(self, partition: int) -> int: ...

    def forget(self, partition: int) -> None: ...

    def begin(self, partition: int, records: Sequence[Record]) -> Folding:
        """Opens a batch. `records` are those of it, as the log holds them: what may be needed is loaded at once."""
