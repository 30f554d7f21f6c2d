"""Prefixes that were trimmed: going on behind one, and refusing what cannot be told without it.

What was trimmed belongs to trajectories that have ended (`tracklog retention`), so a reader that only waits for what
comes may pass it. Who must know of a trajectory from its beginning may not: to him one that has ended would look new.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final, Protocol, runtime_checkable

from tracklog.infra.log.partitioner import partition_of
from tracklog.infra.log.port import Log
from tracklog.schemas.errors import OffsetTrimmed, TrajectoryTrimmed

__all__ = [
    "COLD_HINT",
    "Seeking",
    "beginning_of",
    "beginning_trimmed",
    "begun_late",
    "check_beginning",
    "check_whole",
    "kept_in_words",
    "pass_trimmed",
]

COLD_HINT: Final = "name the cold tier that has what was trimmed: cold.url (docs/retention.md)"


class Seeking(Protocol):
    """What a Reader and a GroupMember have in common: a place in each partition."""

    def position(self, partition: int) -> int: ...
    def seek(self, partition: int, offset: int) -> None: ...


def pass_trimmed(log: Log, topic: str, reader: Seeking, partitions: Iterable[int]) -> dict[int, int]:
    """After OffsetTrimmed: goes on at the first offset kept wherever a prefix was trimmed under the position.

    Returns how many offsets were passed, by partition; nothing when that was not the reason.
    """
    passed = {}
    for partition in partitions:
        first = log.bounds(topic, partition).first
        behind = first - reader.position(partition)
        if behind > 0:
            reader.seek(partition, first)
            passed[partition] = behind
    return passed


def beginning_trimmed(topic: str, partition: int, first: int, trajectory_id: str) -> TrajectoryTrimmed:
    """That of a trajectory whose first event is not among what is kept, which begins at offset `first`."""
    return TrajectoryTrimmed(
        f"{topic}, partition {partition}, is kept from offset {first} on: whether trajectory {trajectory_id!r} begins"
        " before that cannot be told",
        hint=COLD_HINT,
    )


def check_beginning(log: Log, topic: str, trajectory_id: str) -> None:
    """For who found no beginning of a trajectory: raises TrajectoryTrimmed where it may have been trimmed."""
    partition = partition_of(trajectory_id.encode(), log.partition_count(topic))
    first = log.bounds(topic, partition).first
    if first > 0:
        raise beginning_trimmed(topic, partition, first, trajectory_id)


def begun_late(log: Log, topic: str, partitions: Iterable[int]) -> dict[int, int]:
    """The first offset of each of these partitions whose beginning is kept nowhere that was looked at."""
    found = {one: log.bounds(topic, one).first for one in partitions}
    return {partition: first for partition, first in found.items() if first > 0}


def kept_in_words(begun: Mapping[int, int]) -> str:
    """What `begun_late` found, partition by partition."""
    return ", ".join(f"partition {partition} is kept from offset {first} on" for partition, first in begun.items())


def check_whole(log: Log, topic: str, otherwise: str) -> None:
    """For who needs all of a topic: raises OffsetTrimmed where the beginning of a partition was trimmed.
    `otherwise`: the option that goes on without."""
    begun = begun_late(log, topic, range(log.partition_count(topic)))
    if begun:
        raise OffsetTrimmed(
            f"{topic} does not begin at its beginning: {kept_in_words(begun)}; what was before that is missing",
            hint=f"{COLD_HINT}; or go on without it: {otherwise}",
        )


@runtime_checkable
class Finds(Protocol):
    """A log that knows where records under a key begin, without reading what is before them."""

    def first_with(self, topic: str, partition: int, keys: Collection[bytes]) -> int: ...


def beginning_of(log: Log, topic: str, partition: int, keys: Collection[bytes], first: int) -> int:
    """Where to begin reading for these keys, in a partition that begins at `first`: nothing of them is before it."""
    return log.first_with(topic, partition, keys) if first == 0 and isinstance(log, Finds) else first
