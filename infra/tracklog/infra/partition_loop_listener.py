"""What a group tells a partition loop of who owns what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from tracklog.schemas.errors import ClientFatal, LogError

if TYPE_CHECKING:
    from tracklog.infra.partition_loop import PartitionLoop

__all__ = ["HintedMember", "Listener"]


class Listener:
    """Ownership as the group tells it, inside `poll` and `close`, on the loop's thread."""

    def __init__(self, loop: PartitionLoop) -> None:
        self._loop = loop
        self.member: HintedMember | None = None
        self.hints_refused = 0

    def assigned(self, partitions: Sequence[int]) -> Mapping[int, int]:
        starts = {partition: self._loop.own(partition) for partition in partitions}
        self._loop.progress.assigned()
        return starts

    def revoked(self, partitions: Sequence[int]) -> None:
        self._loop.on_release()
        self.hint({p: offset for p, offset in self._loop.stored().items() if p in partitions})
        self.lost(partitions)

    def lost(self, partitions: Sequence[int]) -> None:
        for partition in partitions:
            self._loop.disown(partition)

    def hint(self, positions: Mapping[int, int]) -> None:
        """A commit that fails costs nothing but the hint; a client that is finished does."""
        if self.member is None or not positions:
            return
        try:
            self.member.commit(positions)
        except ClientFatal:
            raise
        except LogError:
            self.hints_refused += 1


class HintedMember(Protocol):
    def commit(self, positions: Mapping[int, int]) -> None: ...
