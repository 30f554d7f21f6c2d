"""A key of a projection for people, in whatever shape it has."""

from __future__ import annotations

from typing import Any

from tracklog.consumers.read import Answer, Reader
from tracklog.processors.processor import Shape
from tracklog.schemas.errors import InputError

__all__ = ["shown_of"]


async def shown_of(reader: Reader, name: str, key: str, limit: int) -> Answer[dict[str, Any] | list[Any]]:
    """Sums where there are some; [score, member] from the highest; the newest entries; else what each partition has.

    Raises InputError for a key that the layout does not have.
    """
    match await reader.shape(name, key):
        case Shape.SORTED_SET:
            page = await reader.ranked(name, key, limit=limit)
            return Answer([[one.score, one.member] for one in page.value.rows], page.as_of)
        case Shape.STREAM:
            newest = await reader.entries(name, key, limit=limit)
            rows = [[f"{one.partition}:{one.offset}", dict(one.fields)] for one in newest.value.rows]
            return Answer(rows, newest.as_of)
        case Shape.HASH | Shape.COUNTERS:
            try:
                summed = await reader.totals(name, key)
            except InputError:
                return await _parts(reader, name, key)
            return Answer(dict(sorted(summed.value.items())), summed.as_of)
        case _:
            return await _parts(reader, name, key)


async def _parts(reader: Reader, name: str, key: str) -> Answer[dict[str, Any] | list[Any]]:
    found = await reader.parts(name, key)
    return Answer({str(partition): value for partition, value in found.value.items()}, found.as_of)
