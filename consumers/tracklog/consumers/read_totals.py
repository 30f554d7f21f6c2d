"""What views keep, by the layout that they declare: every partition has its own, and here they are put together.

All of it blocks, and takes the live version of a projection. Keys are as the processor wrote them: a name of its
layout, or such a name, a colon and any text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Final, NamedTuple, Self

import orjson

from tracklog.consumers.read_filter import Cursor, Filter
from tracklog.consumers.read_live import all_of, pairs
from tracklog.consumers.read_walk import walked
from tracklog.infra.redis_client import RedisClient, store_errors
from tracklog.infra.redis_script import ask
from tracklog.processors.processor import Shape
from tracklog.processors.redis_store import SCAN_KEYS, LiveKeys, layout_of
from tracklog.schemas.errors import InputError, RangeError

__all__ = ["Entries", "EntryPlace", "Listed", "Ranked", "entries", "key_names", "parts", "ranked", "shape_of", "totals"]

MEMBERS_MAX: Final = 100_000
"""Members of sorted sets that are added up in one answer."""
KEYS_MAX: Final = 10_000
"""Keys that are named in one answer."""
_NUMBER: Final = re.compile(rb"-?(0|[1-9][0-9]{0,17})")


class Ranked(NamedTuple):
    """A member of a sorted set, and its score. One that several partitions have comes once for each."""

    member: str
    score: int
    partition: int


class Listed(NamedTuple):
    """`next` starts the page after this one; None when there is none."""

    rows: list[Ranked]
    next: Cursor | None


class Entry(NamedTuple):
    """Of a stream. `offset`: of the event that it is about, in its partition of the events topic; one of a trajectory
    that was parked meanwhile has the newest offset of its time."""

    partition: int
    offset: int
    fields: Mapping[str, str]


class EntryPlace(NamedTuple):
    """A place in streams of all partitions, which run from the newest entry to the oldest."""

    number: int
    at: int
    partition: int

    def token(self) -> str:
        return f"{self.number}-{self.at}-{self.partition}"

    @classmethod
    def of(cls, token: str) -> Self:
        """Raises RangeError for a text that is no place."""
        found = re.fullmatch(r"([0-9]{1,18})-([0-9]{1,18})-([0-9]{1,9})", token)
        if found is None or not token.isascii():
            raise RangeError(f"{token!r} is no cursor", hint="use the one that the page before gave")
        return cls(*map(int, found.groups()))


class Entries(NamedTuple):
    """`next` starts the page after this one; None when there is none."""

    rows: list[Entry]
    next: EntryPlace | None


def totals(client: RedisClient, live: LiveKeys, key: str) -> dict[str, int]:
    """By field, counter or member: the sum over partitions.

    Raises InputError for a key that the layout does not have, for a shape that has no sums, for a hash with a field
    that is no whole number, and for more than MEMBERS_MAX members.
    """
    shape = shape_of(client, live, key, (Shape.HASH, Shape.COUNTERS, Shape.SORTED_SET))
    found = dict[str, int]()
    names = [live.keys.key(partition, key) for partition in all_of(live)]
    if shape is Shape.SORTED_SET:
        if sum(ask(client, [("ZCARD", name) for name in names])) > MEMBERS_MAX:
            raise InputError(
                f"{key!r} of {live.keys.name} has more than {MEMBERS_MAX} members", hint="read it in pages"
            )
        numbers: Iterable[tuple[str, int]] = (
            (member, score)
            for answer in ask(client, [("ZRANGE", name, 0, -1, "WITHSCORES") for name in names])
            for score, member in pairs(answer)
        )
    else:
        numbers = _numbers(live, key, ask(client, [("HGETALL", name) for name in names]))
    for name, number in numbers:
        found[name] = found.get(name, 0) + number
    return found


def _numbers(live: LiveKeys, key: str, answers: Iterable[Mapping[bytes, bytes]]) -> Iterator[tuple[str, int]]:
    for fields in answers:
        for name, value in fields.items():
            if _NUMBER.fullmatch(value) is None:
                raise InputError(
                    f"field {name.decode(errors='replace')!r} of {key!r} of {live.keys.name} is no number: no sum",
                    hint="read it by partition",
                )
            yield name.decode(), int(value)


def parts(client: RedisClient, live: LiveKeys, key: str) -> dict[int, Any]:
    """By partition, of those that have it: what is in a JSON key, or a hash as text. Raises InputError."""
    shape = shape_of(client, live, key, (Shape.HASH, Shape.COUNTERS, Shape.JSON))
    command = "GET" if shape is Shape.JSON else "HGETALL"
    answers = ask(client, [(command, live.keys.key(partition, key)) for partition in all_of(live)])
    if shape is Shape.JSON:
        return {p: orjson.loads(answer) for p, answer in enumerate(answers) if answer is not None}
    return {p: {n.decode(): v.decode() for n, v in fields.items()} for p, fields in enumerate(answers) if fields}


def ranked(
    client: RedisClient, live: LiveKeys, key: str, *, lowest_first: bool, cursor: Cursor | None, limit: int
) -> Listed:
    """A page of a sorted set. The cursor is a place in the order. Raises InputError."""
    shape_of(client, live, key, (Shape.SORTED_SET,))
    keys = {partition: [live.keys.key(partition, key)] for partition in all_of(live)}
    walk = walked(client, keys, Filter(), cursor, limit + 1, lowest_first=lowest_first)
    found = list(islice(walk, limit + 1))
    rows = [Ranked(one.trajectory_id, one.last_ms, partition) for partition, one in found[:limit]]
    return Listed(rows, found[limit - 1][1] if len(found) > limit else None)


def entries(client: RedisClient, live: LiveKeys, key: str, *, cursor: EntryPlace | None, limit: int) -> Entries:
    """A page of a stream, the newest of each partition first; between partitions by offset, which is no time.

    Raises InputError.
    """
    shape_of(client, live, key, (Shape.STREAM,))
    commands = []
    for partition in all_of(live):
        newest = "+" if cursor is None else _behind(cursor, partition)
        commands.append(("XREVRANGE", live.keys.key(partition, key), newest, "-", "COUNT", limit + 1))
    found = sorted(
        (
            (_place(name, partition), fields)
            for partition, answer in enumerate(ask(client, commands))
            for name, fields in answer
        ),
        key=lambda one: one[0],
        reverse=True,
    )
    rows = [
        Entry(place.partition, place.number - 1, {name.decode(): value.decode() for name, value in _pairs(fields)})
        for place, fields in found[:limit]
    ]
    return Entries(rows, found[limit - 1][0] if len(found) > limit else None)


def key_names(client: RedisClient, live: LiveKeys, start: str) -> list[str]:
    """The keys of its layout that begin so, of all partitions, KEYS_MAX at most. What a runner keeps beside them is no
    key of the processor's. Looks at every key in Redis: for people."""
    layout = layout_of(client, live.keys)
    bases = {live.keys.base(partition) for partition in all_of(live)}
    found = set[str]()
    pattern = f"{live.keys.base(0).replace('{0}', '{*}')}{_literal(start)}*"
    with store_errors(client):
        for name in client.scan_iter(match=pattern, count=SCAN_KEYS):
            base = next((one for one in bases if name.decode().startswith(one)), None)
            key = None if base is None else name.decode().removeprefix(base)
            if key is not None and key.partition(":")[0] in layout:
                found.add(key)
            if len(found) >= KEYS_MAX:
                break
    return sorted(found)


def _place(name: bytes, partition: int) -> EntryPlace:
    number, _, at = name.partition(b"-")
    return EntryPlace(int(number), int(at), partition)


def shape_of(client: RedisClient, live: LiveKeys, key: str, fit: tuple[Shape, ...] = tuple(Shape)) -> Shape:
    """What a key is by the declared layout. Raises InputError for one that it does not have, or that does not fit."""
    layout = layout_of(client, live.keys)
    shape = layout.get(key.partition(":")[0])
    if shape is None:
        raise InputError(
            f"projection {live.keys.name!r} has no key {key!r}",
            hint=f"one of {', '.join(sorted(layout))}, or with a colon and a text behind it" if layout else "",
        )
    if shape not in fit:
        raise InputError(
            f"{key!r} of {live.keys.name} is a {shape.value}",
            hint=f"this is for {', '.join(sorted(one.value for one in fit))}",
        )
    return shape


def _behind(cursor: EntryPlace, partition: int) -> str:
    """Where a partition's entries behind a place begin: equal ids lie behind in lower partitions only."""
    exclusive = "" if partition < cursor.partition else "("
    return f"{exclusive}{cursor.number}-{cursor.at}"


def _literal(text: str) -> str:
    """As a pattern that matches nothing else."""
    return re.sub(r"([*?\[\]\\^])", r"\\\1", text)


def _pairs(fields: Any) -> Iterable[tuple[bytes, bytes]]:
    """An entry's names and values, however the client gives them."""
    if isinstance(fields, Mapping):
        return fields.items()
    return zip(fields[::2], fields[1::2], strict=True)
