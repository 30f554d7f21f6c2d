"""The store: each batch of a partition in one guarded script, states and position together (DESIGN §10).

The script does nothing unless the stored checkpoint is the one this writer left there. So a batch that comes twice
is harmless, a former owner cannot write, and a store that was wiped, rolled back or failed over is noticed at the
next batch: StoreConflict, and the log is read again from what the store says now.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace as replaced
from importlib import resources
from typing import Any, Final, NamedTuple

import orjson

from tracklog.infra.clock import Entropy
from tracklog.infra.redis_client import RedisClient, store_errors
from tracklog.infra.redis_script import RedisScript, ask
from tracklog.processors.processor import Shape
from tracklog.processors.store import Checkpoint, Ranked, Sent
from tracklog.processors.store_keys import StoreKeys, build_field, layout_field, pointer_key
from tracklog.processors.writes import (
    Add,
    Clear,
    Extend,
    Keep,
    Push,
    PutJson,
    Rank,
    Remove,
    SetFields,
    Shelf,
    Unrank,
    Unset,
    Write,
)
from tracklog.schemas.errors import StoreConflict

SCAN_KEYS: Final = 1000


class RedisStore:
    """See `Store`. Numbers are written exactly up to 2^53: the script knows no larger ones. `follow` the live build,
    or keep to the one that `keys` name. `script`: that of `committing`, where several stores send together."""

    def __init__(
        self,
        client: RedisClient,
        keys: StoreKeys,
        *,
        source: str,
        entropy: Entropy,
        follow: bool = True,
        script: RedisScript | None = None,
    ) -> None:
        self._client = client
        self.keys = keys
        self.source = source
        self._follow = follow
        self._entropy = entropy
        self._script = script if script is not None else committing(client)

    def refresh(self) -> None:
        if self._follow:
            self.keys = replaced(self.keys, build=self.live_build())

    def live_build(self) -> int:
        """The build of this version that readers follow; 0 where none was said."""
        pointer = pointer_key(self.keys.prefix, self.keys.name)
        (build,) = ask(self._client, [("HGET", pointer, build_field(self.keys.version))])
        return 0 if build is None else int(build)

    def checkpoint(self, partition: int) -> Checkpoint | None:
        (answer,) = ask(self._client, [("HMGET", self.keys.checkpoint(partition), *Checkpoint._fields)])
        return checkpoint_of(answer)

    def hashes(self, partition: int, expected: Checkpoint | None, keys: Sequence[str]) -> list[Mapping[bytes, bytes]]:
        """See `Store`. The checkpoint is read last: where it is still the expected one, nothing had moved before."""
        if not keys:
            return []
        base = self.keys.base(partition)
        *found, answer = ask(
            self._client,
            [
                *(("HGETALL", base + one) for one in keys),
                ("HMGET", self.keys.checkpoint(partition), *Checkpoint._fields),
            ],
        )
        stored = checkpoint_of(answer)
        if stored != expected:
            raise self._conflict(partition, stored, expected)
        return found

    def ranked(
        self, partition: int, expected: Checkpoint | None, key: str, count_max: int, *, score_max: int | None = None
    ) -> Ranked:
        """See `Store`. As in `hashes`, the checkpoint is read last."""
        name, most = self.keys.key(partition, key), "+inf" if score_max is None else score_max
        size, found, answer = ask(
            self._client,
            [
                ("ZCARD", name),
                ("ZRANGEBYSCORE", name, "-inf", most, "WITHSCORES", "LIMIT", 0, count_max),
                ("HMGET", self.keys.checkpoint(partition), *Checkpoint._fields),
            ],
        )
        stored = checkpoint_of(answer)
        if stored != expected:
            raise self._conflict(partition, stored, expected)
        first = [(round(float(score)), member.decode()) for member, score in zip(found[::2], found[1::2], strict=True)]
        return Ranked(size, first)

    def commit(self, partition: int, expected: Checkpoint | None, position: int, writes: Iterable[Write]) -> Checkpoint:
        return self.send(partition, expected, position, writes)()

    def send(self, partition: int, expected: Checkpoint | None, position: int, writes: Iterable[Write]) -> Sent:
        incarnation = self._entropy.nonce().hex() if expected is None else expected.incarnation
        batch = _Batch(self.keys.base(partition), self.keys.checkpoint(partition))
        for write in writes:
            batch.add(write)
        guard = ("", "") if expected is None else (expected.incarnation, str(expected.position))
        plan = {
            "guard": guard,
            "next": (incarnation, str(position), self.source),
            "writes": batch.writes,
        }
        said = self._script.send(batch.keys, [orjson.dumps(plan), *batch.data])

        def stored() -> Checkpoint:
            answer = said()
            if answer != 1:
                raise self._conflict(partition, checkpoint_of([*answer, b""]), expected)
            return Checkpoint(incarnation, position, self.source)

        return stored

    def _conflict(self, partition: int, stored: Checkpoint | None, expected: Checkpoint | None) -> StoreConflict:
        return StoreConflict(
            f"{self.keys.base(partition)}* moved under its writer: it is at {_where(stored)}, expected was"
            f" {_where(expected)}"
        )

    def publish(self, partitions: int, *, replace: bool = False) -> int:
        if replace:
            point_to(self._client, LiveKeys(self.keys, partitions))
            return partitions
        pointer = pointer_key(self.keys.prefix, self.keys.name)
        said = [("HSETNX", pointer, "version", self.keys.version), ("HSETNX", pointer, "partitions", partitions)]
        return int(ask(self._client, [*said, ("HGET", pointer, "partitions")])[-1])

    def declare(self, layout: str) -> str:
        field, pointer = layout_field(self.keys.version), pointer_key(self.keys.prefix, self.keys.name)
        _, said = ask(self._client, [("HSETNX", pointer, field, layout), ("HGET", pointer, field)])
        return str(said.decode())

    def content(self, partition: int) -> Iterator[tuple[str, Any]]:
        """Every key of a partition but the checkpoint, in order, as `MemoryStore.content` gives it. Not one moment's:
        compare the checkpoints before and after."""
        base = self.keys.base(partition)
        with store_errors(self._client):
            names = {key.decode() for key in self._client.scan_iter(match=base + "*", count=SCAN_KEYS)}
        names.discard(self.keys.checkpoint(partition))
        ordered = sorted(names)
        for start in range(0, len(ordered), SCAN_KEYS):
            yield from self._content_of(base, ordered[start : start + SCAN_KEYS])

    def _content_of(self, base: str, names: Sequence[str]) -> Iterator[tuple[str, Any]]:
        kinds = ask(self._client, [("TYPE", name) for name in names])
        answers = ask(self._client, [_READ[kind.decode()](name) for name, kind in zip(names, kinds, strict=True)])
        for name, kind, answer in zip(names, kinds, answers, strict=True):
            if answer is not None and kind != b"none":
                yield name.removeprefix(base), _content(kind.decode(), answer)

    def drop(self, partition: int) -> int:
        """Deletes all that is stored of a partition, checkpoint first; returns how many keys."""
        count = 0
        with store_errors(self._client):
            count += _number(self._client.delete(self.keys.checkpoint(partition)))
            for key in self._client.scan_iter(match=self.keys.key(partition, "*"), count=SCAN_KEYS):
                count += _number(self._client.unlink(key))
        return count


class _Batch:
    """Writes as the script's plan: keys by their place among KEYS, bytes by theirs among ARGV.

    One JSON text for everything that is no bytes: a client spends more on many small arguments than on all else.
    """

    def __init__(self, base: str, checkpoint: str) -> None:
        self._base = base
        self._places: dict[str, int] = {}
        self.keys = [checkpoint]
        self.data: list[bytes] = []
        self.writes: list[tuple[object, ...]] = []

    def add(self, write: Write) -> None:
        match write:
            case SetFields(key, fields):
                raw = {name: self._put((value,)) for name, value in fields.items() if isinstance(value, bytes)}
                plain = {name: value for name, value in fields.items() if not isinstance(value, bytes)}
                self.writes.append(("set", self._place(key), plain, raw))
            case Unset(key, fields):
                self.writes.append(("unset", self._place(key), list(fields)))
            case Rank(keys, member, score):
                self.writes.append(("rank", score, member, [self._place(key) for key in keys]))
            case Unrank(keys, member):
                self.writes.append(("unrank", member, [self._place(key) for key in keys]))
            case Extend(key, data):
                self.writes.append(("extend", self._place(key), self._put((data,))))
            case Keep():
                first = self._put(write.entries)
                bounds = write.count_max, write.bytes_max, write.expire_at_ms
                self.writes.append(
                    (
                        "keep",
                        *(self._place(write.key), self._place(write.sizes), write.member),
                        self._shelf(write.shelf),
                        *bounds,
                        *(first, len(write.entries)),
                        *(write.grown_ms, write.shelf_bytes_max),
                    )
                )
            case Clear(key, sizes, member, shelf):
                self.writes.append(("clear", self._place(key), self._place(sizes), member, self._shelf(shelf)))
            case Add(key, amounts):
                self.writes.append(("add", self._place(key), {name: str(n) for name, n in amounts.items()}))
            case PutJson(key, value):
                self.writes.append(("put", self._place(key), self._put((orjson.dumps(value),))))
            case Push(key, offset, fields, count_max):
                texts = [text for pair in fields.items() for text in map(str, pair)]
                self.writes.append(("push", self._place(key), str(offset + 1), count_max, texts))
            case Remove(keys):
                self.writes.append(("remove", [self._place(key) for key in keys]))

    def _shelf(self, shelf: Shelf) -> tuple[object, ...]:
        return self._place(shelf.ranked), self._place(shelf.totals), shelf.name

    def _put(self, data: Sequence[bytes]) -> int:
        """The place of the first among ARGV, where the plan is the first of all."""
        place = len(self.data) + 2
        self.data.extend(data)
        return place

    def _place(self, key: str) -> int:
        place = self._places.get(key)
        if place is None:
            self.keys.append(self._base + key)
            place = self._places[key] = len(self.keys)
        return place


_READ: Final[Mapping[str, Callable[[str], tuple[str | int, ...]]]] = {
    "none": lambda name: ("GET", name),
    "string": lambda name: ("GET", name),
    "hash": lambda name: ("HGETALL", name),
    "list": lambda name: ("LRANGE", name, 0, -1),
    "zset": lambda name: ("ZRANGE", name, 0, -1, "WITHSCORES"),
    "stream": lambda name: ("XRANGE", name, "-", "+"),
}
"""How a key is read whole, by what Redis calls its type."""


def _content(kind: str, answer: Any) -> Any:
    match kind:
        case "zset":
            return {member: float(score) for member, score in zip(answer[::2], answer[1::2], strict=True)}
        case "stream":
            return [(_entry_id(name), dict(fields)) for name, fields in answer]
        case _:
            return answer


def _entry_id(name: bytes) -> tuple[int, int]:
    number, _, at = name.partition(b"-")
    return int(number), int(at)


def checkpoint_of(answer: Sequence[bytes | None]) -> Checkpoint | None:
    """From the answer to HMGET incarnation position source."""
    incarnation, position, source = answer
    if incarnation is None or position is None or source is None:
        return None
    return Checkpoint(incarnation.decode(), int(position), source.decode())


class LiveKeys(NamedTuple):
    """What readers of a projection follow."""

    keys: StoreKeys
    partitions: int


def live_keys(client: RedisClient, prefix: str, name: str, version: int | None = None) -> LiveKeys | None:
    """By the projection's pointer; None when nothing was folded yet. `version`: another than the one it names."""
    (fields,) = ask(client, [("HGETALL", pointer_key(prefix, name))])
    named, partitions = fields.get(b"version"), fields.get(b"partitions")
    if named is None or partitions is None:
        return None
    version = int(named) if version is None else version
    build = fields.get(build_field(version).encode(), b"0")
    return LiveKeys(StoreKeys(prefix, name, version, int(build)), int(partitions))


def point_to(client: RedisClient, live: LiveKeys) -> None:
    """Turns readers, and those who fold this version, to this build of it: in one step."""
    keys = live.keys
    fields = ("version", keys.version, "partitions", live.partitions, build_field(keys.version), keys.build)
    ask(client, [("HSET", pointer_key(keys.prefix, keys.name), *fields)])


def layout_of(client: RedisClient, keys: StoreKeys) -> Mapping[str, Shape]:
    """What a version said of its keys; empty when it said nothing."""
    (said,) = ask(client, [("HGET", pointer_key(keys.prefix, keys.name), layout_field(keys.version))])
    return {} if said is None else {name: Shape(shape) for name, shape in orjson.loads(said).items()}


def committing(client: RedisClient) -> RedisScript:
    """What stores of one client send their steps by. See `RedisScript`."""
    source = (resources.files("tracklog.processors") / "guarded_commit.lua").read_text(encoding="utf-8")
    return RedisScript(client, source)


def _where(checkpoint: Checkpoint | None) -> str:
    return "nothing" if checkpoint is None else f"offset {checkpoint.position} of {checkpoint.incarnation[:8]}"


def _number(answer: Any) -> int:
    return int(answer)
