"""Trajectories of which a projection has seen no beginning: the log was trimmed before it was folded (DESIGN §10).

partial   sorted set: trajectories whose first record that was seen is not their first event, by its offset
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from tracklog.processors.writes import Rank

__all__ = ["NAMED_MAX", "PARTIAL", "Partial", "partial_of", "partial_writes"]

PARTIAL: Final = "partial"
NAMED_MAX: Final = 20
"""Trajectories that are named of one projection; all are counted."""


class Partial(NamedTuple):
    """`total` trajectories, the first NAMED_MAX of which are named."""

    total: int = 0
    trajectories: tuple[str, ...] = ()


def partial_writes(seen: Mapping[str, int]) -> Iterator[Rank]:
    """`seen`: by trajectory the offset of a record of it behind its first event."""
    for trajectory_id, offset in seen.items():
        yield Rank([PARTIAL], trajectory_id, offset)


def partial_of(found: Iterable[tuple[int, Iterable[str]]]) -> Partial:
    """From (how many there are, the first ones) of each partition."""
    count, names = 0, list[str]()
    for size, some in found:
        count += size
        names += some
    return Partial(count, tuple(sorted(names)[:NAMED_MAX]))
