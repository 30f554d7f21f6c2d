"""The store: each batch of a partition in one guarded script, states and position together (DESIGN §10).

The script does nothing unless the stored checkpoint is the one this writer left there. So a batch that comes twice
is harmless, a former owner cannot write, and a store that was wiped, rolled back or failed over is noticed at the
next batch: StoreConflict, and the log is read again from what the store says now.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from typing import Any, Final, NamedTuple

import orjson

from tracklog.infra.clock import Entropy
from tracklog.infra.redis_client import RedisClient, store_errors
from tracklog.infra.redis_script import RedisScript, ask
from tracklog.processors.store_keys import StoreKeys, pointer_key
from tracklog.processors.writes import Extend, Keep, Rank, SetFields, Unrank, Unset, Write, own_fields
from tracklog.schemas.errors import StoreConflict

SCAN_KEYS: Final = 1000


class Checkpoint(NamedTuple):
    """How far a partition is folded: `position` is the next offset. `incarnation` is drawn when a partition is
    first written, so a store that was wiped and filled again is another one; `source` names the log."""

    incarnation: str
    position: int
    source: str


class RedisStore:
    """One version of one projection. `source` names the topic it is folded from, for good. Numbers are written exactly
    up to 2^53: the script knows no larger ones."""

    def __init__(self, client: RedisClient, keys: StoreKeys, *, source: str, entropy: Entropy) -> None:
        self._client = client
        self.keys = keys
        self.source = source
        self._entropy = entropy
        self._commit = RedisScript(client, _script())

    def checkpoint(self, partition: int) -> Checkpoint | None:
        """What is stored; None for nothing."""
        (answer,) = ask(self._client, [("HMGET", self.keys.checkpoint(partition), *Checkpoint._fields)])
        return checkpoint_of(answer)

    def load(
        self, partition: int, expected: Checkpoint | None, trajectory_ids: Sequence[str]
    ) -> list[Mapping[bytes, bytes]]:
        """Each trajectory's own fields, in one round trip; empty for those that are not there.

        Raises StoreConflict when they may be newer than `expected`: the checkpoint is read last, so where it is
        still the expected one, nothing had moved before.
        """
        if not trajectory_ids:
            return []
        base = self.keys.base(partition)
        *found, answer = ask(
            self._client,
            [
                *(("HGETALL", base + own_fields(one)) for one in trajectory_ids),
                ("HMGET", self.keys.checkpoint(partition), *Checkpoint._fields),
            ],
        )
        stored = checkpoint_of(answer)
        if stored != expected:
            raise self._conflict(partition, stored, expected)
        return found

    def commit(self, partition: int, expected: Checkpoint | None, position: int, writes: Iterable[Write]) -> Checkpoint:
        """Writes a batch and moves the position to `position`; all of it, or nothing.

        Raises StoreConflict when the stored checkpoint is not `expected` (None: nothing stored). After
        StoreUnavailable it may have been written: say it again, and a StoreConflict tells that it was.
        """
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
        answer = self._commit(batch.keys, [orjson.dumps(plan), *batch.data])
        if answer != 1:
            raise self._conflict(partition, checkpoint_of([*answer, b""]), expected)
        return Checkpoint(incarnation, position, self.source)

    def _conflict(self, partition: int, stored: Checkpoint | None, expected: Checkpoint | None) -> StoreConflict:
        return StoreConflict(
            f"{self.keys.base(partition)}* moved under its writer: it is at {_where(stored)}, expected was"
            f" {_where(expected)}"
        )

    def publish(self, partitions: int, *, replace: bool = False) -> None:
        """Points readers to this version; without `replace` only when they are pointed nowhere."""
        pointer = pointer_key(self.keys.prefix, self.keys.name)
        set_field = "HSET" if replace else "HSETNX"
        commands = [(set_field, pointer, "version", self.keys.version), ("HSET", pointer, "partitions", partitions)]
        ask(self._client, commands)

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
            case Keep(key, sizes, member, entries, count_max, bytes_max, expire_at_ms):
                places = self._place(key), self._place(sizes)
                first = self._put(entries)
                self.writes.append(("keep", *places, member, count_max, bytes_max, expire_at_ms, first, len(entries)))

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


def checkpoint_of(answer: Sequence[bytes | None]) -> Checkpoint | None:
    """From the answer to HMGET incarnation position source."""
    incarnation, position, source = answer
    if incarnation is None or position is None or source is None:
        return None
    return Checkpoint(incarnation.decode(), int(position), source.decode())


def _script() -> str:
    return (resources.files("tracklog.processors") / "guarded_commit.lua").read_text(encoding="utf-8")


def _where(checkpoint: Checkpoint | None) -> str:
    return "nothing" if checkpoint is None else f"offset {checkpoint.position} of {checkpoint.incarnation[:8]}"


def _number(answer: Any) -> int:
    return int(answer)
