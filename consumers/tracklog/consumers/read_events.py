"""The records of one trajectory: those that Redis keeps, and from the log what it does not keep."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tracklog.infra.log.partitioner import partition_of
from tracklog.infra.log.port import Log, Record
from tracklog.infra.log.ranges import read_range
from tracklog.infra.redis_client import RedisClient
from tracklog.infra.redis_script import ask
from tracklog.processors.processor import Seen
from tracklog.processors.redis_store import LiveKeys
from tracklog.processors.warm_log import decode_entry, decode_offsets, log_key, offsets_key
from tracklog.processors.writes import own_fields
from tracklog.schemas.codec import decode_event
from tracklog.schemas.errors import ForeignRecord
from tracklog.schemas.head import EMPTY_HEAD, Head, Verdict, advance, judge

__all__ = [
    "Accepted",
    "Kept",
    "Standing",
    "accepted_of",
    "kept_in_redis",
    "missing_before",
    "scanned",
    "standings_in_redis",
]


class Kept(NamedTuple):
    """The records of one trajectory that Redis keeps, in log order. `complete` when none is missing before them;
    else `offsets` says where all of them lie."""

    records: list[Record]
    complete: bool
    offsets: list[int]


class Standing(NamedTuple):
    """How a trajectory stands: who runs, and its status in a word."""

    agent: str
    status: str


class Accepted:
    """The accepted events of one trajectory among the records of its partition, from its first on."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._head: Head = EMPTY_HEAD

    def of(self, record: Record) -> Iterator[Seen]:
        if record.key != self._key:
            return
        try:
            event = decode_event(record.key, record.value, record.headers)
        except ForeignRecord:
            return
        judgement = judge(self._head, event)
        self._head = advance(self._head, event, judgement)
        if judgement.verdict is Verdict.ACCEPTED:
            yield Seen(event, record)


def accepted_of(trajectory_id: str, records: Iterable[Record], after_seq: int, limit: int) -> list[Seen]:
    """At most `limit` accepted events behind a seq."""
    accepted, found = Accepted(trajectory_id.encode()), list[Seen]()
    for record in records:
        found += (seen for seen in accepted.of(record) if seen.event.envelope.seq > after_seq)
        if len(found) >= limit:
            break
    return found[:limit]


def kept_in_redis(client: RedisClient, live: LiveKeys, topic: str, trajectory_id: str) -> Kept:
    key = trajectory_id.encode()
    keys, partition = live.keys, partition_of(key, live.partitions)
    entries, offsets, first = ask(
        client,
        [
            ("LRANGE", keys.key(partition, log_key(trajectory_id)), 0, -1),
            ("GET", keys.key(partition, offsets_key(trajectory_id))),
            ("HGET", keys.key(partition, own_fields(trajectory_id)), "first_offset"),
        ],
    )
    records = [decode_entry(entry, topic, partition, key) for entry in entries]
    complete = first is None or (bool(records) and records[0].offset == int(first))
    return Kept(records, complete, decode_offsets(offsets or b""))


def standings_in_redis(client: RedisClient, live: LiveKeys, trajectory_ids: Iterable[str]) -> dict[str, Standing]:
    """Of those that are folded."""
    ids = list(trajectory_ids)
    places = [(partition_of(one.encode(), live.partitions), own_fields(one)) for one in ids]
    answers = ask(client, [("HMGET", live.keys.key(p, own), "agent", "status") for p, own in places])
    return {
        one: Standing(agent.decode(), status.decode())
        for one, (agent, status) in zip(ids, answers, strict=True)
        if status is not None
    }


def missing_before(log: Log, topic: str, partition: int, kept: Kept, position: int) -> list[Record]:
    """From the log, the records that are folded (before `position`) and no longer kept. Blocks."""
    end = kept.records[0].offset if kept.records else position
    wanted = set(kept.offsets)
    return [one for one in read_range(log, topic, partition, kept.offsets[0], end) if one.offset in wanted]


def scanned(log: Log, topic: str, trajectory_id: str) -> tuple[list[Record], int, int]:
    """(all records of a trajectory, its partition, the partition's end) by a scan of the log. Blocks."""
    key = trajectory_id.encode()
    partition = partition_of(key, log.partition_count(topic))
    bounds = log.bounds(topic, partition)
    found = read_range(log, topic, partition, bounds.first, bounds.end, bounds=bounds)
    return [record for record in found if record.key == key], partition, bounds.end
