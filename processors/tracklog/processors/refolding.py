"""A processor folded from the beginning of the log into a store of its own, beside what is live (DESIGN §10)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from tracklog.infra.clock import Clock
from tracklog.infra.log.port import Log
from tracklog.infra.partition_loop import PartitionLoop
from tracklog.infra.settings_sections import Settings
from tracklog.processors.bundle import Bundle
from tracklog.processors.redis_store import RedisStore
from tracklog.processors.running import AnyProcessor, member_of
from tracklog.processors.store import Store
from tracklog.schemas.errors import StoreConflict

T = TypeVar("T")

TRIES: Final = 20
"""How often a partition that moves meanwhile is folded on and looked at again."""


class Refold:
    """`progress` is told of the records of each batch."""

    def __init__(
        self,
        processor: AnyProcessor,
        store: Store,
        log: Log,
        settings: Settings,
        *,
        partitions: int,
        clock: Clock,
        progress: Callable[[int], object],
    ) -> None:
        member = member_of(processor, store, log, settings, partitions=partitions)
        self._bundle = Bundle([member], partitions=partitions)
        self._bundle.on_batch = progress
        self._loop = PartitionLoop(log, settings.topic_names.events, self._bundle, clock=clock, settings=settings.loop)

    @property
    def records(self) -> int:
        """Folded so far."""
        return self._bundle.counts.records

    def up_to(self, ends: Mapping[int, int] | None = None) -> None:
        """Folds partitions up to offsets, exclusive; all of them to the ends found now where none are given."""
        self._loop.drain(ends)

    def beside(self, live: RedisStore, partition: int, look: Callable[[int], T]) -> T:
        """What `look`, given the position, finds in a moment in which both are folded to the same position.

        Raises StoreConflict when the live one moves faster than this.
        """
        for _ in range(TRIES):
            before = live.checkpoint(partition)
            position = 0 if before is None else before.position
            self.up_to({partition: position})
            found = look(position)
            if live.checkpoint(partition) == before:
                return found
        raise StoreConflict(
            f"{live.keys.base(partition)}* moved {TRIES} times while it was compared",
            hint="do it when less is appended, or stop the process that folds it for a moment",
        )
