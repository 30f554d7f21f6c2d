"""A key of a projection for people, in whatever shape it has."""

from __future__ import annotations

from typing import Any, NamedTuple

from tracklog.consumers.read import Answer, Cursor, Reader
from tracklog.consumers.read_totals import EntryPlace
from tracklog.processors.processor import Shape
from tracklog.schemas.errors import InputError

__all__ = ["Shown", "shown_of"]


class Shown(NamedTuple):
    """A key, or a page of one. `next` is the cursor of the page behind this one; None at the end, and where a shape has
    no pages."""

    shape: Shape
    value: dict[str, Any] | list[Any]
    next: str | None = None


async def shown_of(
    reader: Reader, name: str, key: str, limit: int, *, cursor: str | None = None, lowest_first: bool = False
) -> Answer[Shown]:
    """Sums where there are some; [score, member] from the highest, or the lowest; the newest entries; else what each
    partition has.

    Raises InputError for a key that the layout does not have and for a cursor where there are no pages, RangeError for
    what is no cursor.
    """
    shape = await reader.shape(name, key)
    match shape:
        case Shape.SORTED_SET:
            start = None if cursor is None else Cursor.of(cursor)
            page = await reader.ranked(name, key, lowest_first=lowest_first, cursor=start, limit=limit)
            behind = None if page.value.next is None else page.value.next.token()
            return Answer(Shown(shape, [[one.score, one.member] for one in page.value.rows], behind), page.as_of)
        case Shape.STREAM if not lowest_first:
            place = None if cursor is None else EntryPlace.of(cursor)
            newest = await reader.entries(name, key, cursor=place, limit=limit)
            rows = [[f"{one.partition}:{one.offset}", dict(one.fields)] for one in newest.value.rows]
            older = None if newest.value.next is None else newest.value.next.token()
            return Answer(Shown(shape, rows, older), newest.as_of)
        case _ if cursor is not None or lowest_first:
            raise InputError(
                f"{key!r} of {name} is a {shape.value}: it is given whole, and in one order",
                hint="sorted sets and streams have pages; sorted sets have lowest-first",
            )
        case Shape.HASH | Shape.COUNTERS:
            try:
                summed = await reader.totals(name, key)
            except InputError:
                return await _parts(reader, name, key, shape)
            return Answer(Shown(shape, dict(sorted(summed.value.items()))), summed.as_of)
        case _:
            return await _parts(reader, name, key, shape)


async def _parts(reader: Reader, name: str, key: str, shape: Shape) -> Answer[Shown]:
    found = await reader.parts(name, key)
    return Answer(Shown(shape, {str(partition): value for partition, value in found.value.items()}), found.as_of)
