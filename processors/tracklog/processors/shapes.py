"""Whether a write fits the layout that a processor declares: a wrong one is refused before anything is written.

A script that fails half way is not undone by Redis. So nothing may reach it that can fail there: every key has the
shape its name was given, and numbers are whole and exact.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from tracklog.processors.processor import Shape
from tracklog.processors.writes import (
    Add,
    Push,
    PutJson,
    Rank,
    Remove,
    SetFields,
    Unrank,
    Unset,
    Write,
)
from tracklog.schemas.errors import InvalidProcessor

NAME: Final = re.compile(r"[a-z][a-z0-9-]{1,62}")
"""Of processors and of layout names. One letter is for keys of ours."""
RESERVED: Final = frozenset({"checkpoint", "clock", "expiry", "parked", "partial", "retry"})
EXACT_MAX: Final = 2**53
"""Above it the script's numbers, and scores, are not exact."""
FIELDS_MAX: Final = 1000
"""Names and values of one entry of a stream."""

_SHAPES: Final[Mapping[type[Any], frozenset[Shape]]] = {
    SetFields: frozenset({Shape.HASH}),
    Unset: frozenset({Shape.HASH, Shape.COUNTERS}),
    Add: frozenset({Shape.COUNTERS}),
    Rank: frozenset({Shape.SORTED_SET}),
    Unrank: frozenset({Shape.SORTED_SET}),
    Push: frozenset({Shape.STREAM}),
    PutJson: frozenset({Shape.JSON}),
    Remove: frozenset(Shape),
}


def check_write(write: Write, layout: Mapping[str, Shape]) -> None:
    """Raises InvalidProcessor that names what does not fit."""
    allowed = _SHAPES.get(type(write))
    if allowed is None:
        known = ", ".join(kind.__name__ for kind in _SHAPES)
        raise InvalidProcessor(f"{write!r} is no write that a processor may make", hint=f"use one of {known}")
    for key in _keys(write):
        shape = layout.get(key.partition(":")[0])
        if shape is None:
            raise InvalidProcessor(
                f"the layout has no name for the key {key!r}; it has {sorted(layout)}",
                hint="a key is a name of the layout, or such a name, a colon and any text",
            )
        if shape not in allowed:
            raise InvalidProcessor(f"{type(write).__name__} does not go with {key!r}, which is a {shape.value}")
    _check_numbers(write)


def _keys(write: Write) -> tuple[str, ...]:
    match write:
        case Rank(keys=keys) | Unrank(keys=keys) | Remove(keys=keys):
            return tuple(keys)
        case _:
            return (write.key,)


def _check_numbers(write: Write) -> None:
    match write:
        case Rank(score=score):
            _whole(score, "a score")
        case Add(amounts=amounts):
            for name, amount in amounts.items():
                _whole(amount, f"the amount of {name!r}")
        case Push(offset=offset, fields=fields, count_max=count_max):
            _whole(offset, "an offset")
            if not fields or len(fields) * 2 > FIELDS_MAX or count_max < 1:
                raise InvalidProcessor(f"an entry has 1 to {FIELDS_MAX // 2} fields, in a stream of at least one entry")
        case SetFields(fields=fields) if not fields:
            raise InvalidProcessor(f"no field is set in {write.key!r}")
        case _:
            pass


def _whole(number: Any, what: str) -> None:
    if type(number) is not int or abs(number) > EXACT_MAX:
        raise InvalidProcessor(f"{what} is {number!r}: it must be a whole number between -2^53 and 2^53")
