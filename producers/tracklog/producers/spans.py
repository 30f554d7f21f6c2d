"""Where in its partition each trajectory lies, as this process has read it: so opening one reads its own stretches of
the log and not everything after its beginning.

They rest on a scan of the whole partition and on everything that was read since; never on what somebody says. Of a
trajectory with records outside of them a claim would look accepted that is not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

__all__ = ["NOWHERE", "Index", "Places", "Span", "Spans", "grown", "joined"]

JOINED_WITHIN: Final = 1_000
"""Records between two spans that are read along: a reader of its own costs as much."""


class Span(NamedTuple):
    """Offsets of the first and the last record of a stretch."""

    first: int
    last: int


Places = tuple[Span, ...]
"""The stretches of one trajectory, in order."""
NOWHERE: Final[Places] = ()


class Index(NamedTuple):
    """The trajectories of one partition by record key, complete up to `end`."""

    places: Mapping[bytes, Places]
    end: int


class Spans:
    """Of the partitions that were indexed. Used by one thread; `saw` is to be told each record after an index."""

    def __init__(self) -> None:
        self._places: dict[int, dict[bytes, Places]] = {}

    def put(self, partition: int, index: Index) -> None:
        self._places[partition] = dict(index.places)

    def drop(self, partition: int) -> None:
        self._places.pop(partition, None)

    def get(self, partition: int, key: bytes) -> Places | None:
        """None for one of which nothing is known."""
        return self._places.get(partition, {}).get(key)

    def saw(self, partition: int, key: bytes | None, offset: int) -> None:
        indexed = self._places.get(partition)
        places = indexed.get(key) if indexed is not None and key is not None else None
        if places is not None:
            assert indexed is not None
            assert key is not None
            indexed[key] = grown(places, offset)

    def found(self, partition: int, key: bytes, places: Places) -> None:
        """What a scan to where the reader is has found of one that was not known; for an indexed partition only."""
        indexed = self._places.get(partition)
        if indexed is not None:
            indexed[key] = places


def grown(places: Places, offset: int) -> Places:
    """With one more record; one that was there already changes nothing."""
    if not places:
        return (Span(offset, offset),)
    last = places[-1]
    if offset <= last.last:
        return places
    if offset <= last.last + JOINED_WITHIN:
        return (*places[:-1], Span(last.first, offset))
    return (*places, Span(offset, offset))


def joined(spans: Iterable[Span]) -> Iterator[Span]:
    """The same in order, and those that are near one another as one."""
    before: Span | None = None
    for span in sorted(one for one in spans if one.last >= one.first):
        if before is not None and span.first <= before.last + JOINED_WITHIN:
            before = Span(before.first, max(before.last, span.last))
            continue
        if before is not None:
            yield before
        before = span
    if before is not None:
        yield before
