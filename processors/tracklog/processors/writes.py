"""What a processor may write: a few shapes, each cheap and safe to do inside one guarded script.

Keys are relative: the store puts installation, partition, processor and version in front of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

Scalar = str | bytes | int


class SetFields(NamedTuple):
    """Sets fields of a hash; those not named stay."""

    key: str
    fields: Mapping[str, Scalar]


class Unset(NamedTuple):
    """Takes fields out of a hash."""

    key: str
    fields: Sequence[str]


class Rank(NamedTuple):
    """Puts a member into sorted sets under one score, or moves it there."""

    keys: Sequence[str]
    member: str
    score: int


class Unrank(NamedTuple):
    """Takes a member out of sorted sets."""

    keys: Sequence[str]
    member: str


class Extend(NamedTuple):
    """Appends bytes to a string."""

    key: str
    data: bytes


class Keep(NamedTuple):
    """Appends entries to a list that keeps the newest: at most `count_max` of them and `bytes_max` bytes.

    The whole list leaves at `expire_at_ms` (milliseconds since 1970) unless more comes. `sizes` is a hash that
    holds the bytes kept, under `member`.
    """

    key: str
    sizes: str
    member: str
    entries: Sequence[bytes]
    count_max: int
    bytes_max: int
    expire_at_ms: int


Write = SetFields | Unset | Rank | Unrank | Extend | Keep


def own_fields(trajectory_id: str) -> str:
    """Key of the hash that holds a trajectory's state: what `Processor.load` is given."""
    return f"t:{trajectory_id}"
