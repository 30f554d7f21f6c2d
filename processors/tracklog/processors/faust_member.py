"""A member of a consumer group whose records a Faust app brings: what the partition loop polls (DESIGN §10).

Faust says who owns what and hands over records as they come. It commits past what failed and starts where it has
committed; so nothing here rests on its place. Where the loop's position is not where Faust goes on (at the start,
after a conflict, past what Faust skipped), the records in between are read from the log itself.
"""

from __future__ import annotations

import queue
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple

from tracklog.infra.log.port import GroupListener, Log, Record
from tracklog.infra.log.ranges import read_range

__all__ = ["BATCHES_MAX", "FaustMember", "Owned"]

BATCHES_MAX: Final = 8
"""Batches of Faust's that wait for the loop; Faust's agent waits behind them."""


class Owned(NamedTuple):
    """The partitions that the app owns from now on."""

    partitions: frozenset[int]


class FaustMember:
    """See `GroupMember`. `offers` is filled by the app, read by the loop's thread, which calls everything else."""

    def __init__(
        self, log: Log, topic: str, listener: GroupListener, offers: queue.Queue[Owned | Sequence[Record]]
    ) -> None:
        self._log = log
        self._topic = topic
        self._listener = listener
        self._offers = offers
        self._positions: dict[int, int] = {}
        self._behind: dict[int, int] = {}
        """Ends up to which partitions are read from the log itself, by partition."""
        self._reading: Iterator[Record] = iter(())
        self._offered: list[Record] = []
        self._paused: set[int] = set()

    def poll(self, max_records: int, timeout_s: float) -> list[Record]:
        records = self._from_log(max_records)
        if records:
            return records
        if not self._offered:
            self._take(timeout_s)
        return self._from_offer(max_records)

    def position(self, partition: int) -> int:
        return self._positions[partition]

    def seek(self, partition: int, offset: int) -> None:
        self._positions[partition] = offset
        self._catch_up([partition])

    def commit(self, positions: Mapping[int, int]) -> None:
        """Faust commits by itself: a hint, as any."""

    def committed(self, partitions: Sequence[int]) -> Mapping[int, int | None]:
        return dict.fromkeys(partitions)

    def pause(self, partitions: Sequence[int]) -> None:
        self._paused.update(partitions)

    def resume(self, partitions: Sequence[int]) -> None:
        self._paused.difference_update(partitions)
        self._catch_up([partition for partition in partitions if partition in self._positions])

    def close(self) -> None:
        self._own(frozenset())

    def _take(self, timeout_s: float) -> None:
        try:
            offer = self._offers.get(timeout=timeout_s)
        except queue.Empty:
            return
        if isinstance(offer, Owned):
            self._own(offer.partitions)
        else:
            self._offered = [record for record in offer if record.partition in self._positions]

    def _own(self, partitions: frozenset[int]) -> None:
        gone = sorted(self._positions.keys() - partitions)
        if gone:
            self._listener.lost(gone)  # another may own them already: the store's guard decides
        for partition in gone:
            del self._positions[partition]
            self._behind.pop(partition, None)
        new = sorted(partitions - self._positions.keys())
        if new:
            self._positions |= self._listener.assigned(new)
            self._catch_up(new)

    def _catch_up(self, partitions: Sequence[int]) -> None:
        self._reading = iter(())
        for partition in partitions:
            self._behind[partition] = self._log.bounds(self._topic, partition).end

    def _from_log(self, max_records: int) -> list[Record]:
        """Records below the ends found when ownership or position changed."""
        for partition in sorted(self._behind):
            if partition in self._paused:
                continue
            records = list(islice(self._reading, max_records))
            if not records:
                self._reading = read_range(
                    self._log, self._topic, partition, self._positions[partition], self._behind[partition]
                )
                records = list(islice(self._reading, max_records))
            if records:
                self._positions[partition] = records[-1].offset + 1
                return records
            self._positions[partition] = max(self._positions[partition], self._behind.pop(partition))
            self._reading = iter(())
        return []

    def _from_offer(self, max_records: int) -> list[Record]:
        """What the app brought, as far as it goes on where each partition stands."""
        found: list[Record] = []
        while self._offered and len(found) < max_records:
            record = self._offered[0]
            at = self._positions.get(record.partition)
            if at is None or record.partition in self._paused or record.offset < at:
                self._offered.pop(0)
                continue
            if record.offset > at:
                self._behind[record.partition] = record.offset
                break
            found.append(self._offered.pop(0))
            self._positions[record.partition] = record.offset + 1
        return found
