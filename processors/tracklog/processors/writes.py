"""What a processor may write: a few shapes, each cheap and safe to do inside one guarded script.

Keys are relative: the store puts installation, partition, processor and version in front of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

Scalar = str | bytes | int


class SetFields(NamedTuple):
    """Sets fields of a hash; those not named stay."""

    key: str
    fields: Mapping[str, Scalar]


class Unset(NamedTuple):
    """Takes fields out of a hash, or counters out of theirs."""

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


class Shelf(NamedTuple):
    """Lists that share a bound of bytes. `ranked`: their members, by when they last grew; `totals`: a hash that holds
    the bytes of all, under `name`."""

    ranked: str
    totals: str
    name: str


class Keep(NamedTuple):
    """Appends entries to a list that keeps the newest: at most `count_max` of them and `bytes_max` bytes.

    The whole list leaves at `expire_at_ms` (milliseconds since 1970) unless more comes, and before that when those of
    its shelf have more than `shelf_bytes_max`: the ones that grew last the longest ago, none where that is 0. Keys of
    lists end with their members. `sizes` is a hash that holds the bytes kept, under `member`.
    """

    key: str
    sizes: str
    member: str
    entries: Sequence[bytes]
    count_max: int
    bytes_max: int
    expire_at_ms: int
    shelf: Shelf
    grown_ms: int
    shelf_bytes_max: int


class Clear(NamedTuple):
    """Deletes a list that was kept, and what is counted of it."""

    key: str
    sizes: str
    member: str
    shelf: Shelf


class Add(NamedTuple):
    """Adds to counters of a hash: exactly once, because the whole batch is. Between -2^53 and 2^53."""

    key: str
    amounts: Mapping[str, int]


class PutJson(NamedTuple):
    """Sets a string to the JSON of a value (`orjson.dumps`)."""

    key: str
    value: Any


class Push(NamedTuple):
    """Adds an entry to a Redis stream that keeps the newest `count_max`.

    `offset` is that of the event: the entry's id is `OFFSET+1-N`, N from 0 for several of one event, so that ids are
    the same whenever the stream is made again, and a reader's last id is a position in the log. One that comes late
    (its trajectory had stopped, and was tried again) takes the newest entry's number.
    """

    key: str
    offset: int
    fields: Mapping[str, str | int]
    count_max: int = 10_000


class Remove(NamedTuple):
    """Deletes keys."""

    keys: Sequence[str]


Write = SetFields | Rank | Unrank | Extend | Keep | Clear | Unset | Add | PutJson | Push | Remove


def own_fields(trajectory_id: str) -> str:
    """Key of the hash that holds a trajectory's state: what `Processor.load` is given."""
    return f"t:{trajectory_id}"
