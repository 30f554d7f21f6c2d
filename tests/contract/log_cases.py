"""What the contract suite needs of each log: opening it twice, topics, and bytes that are not ours."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from confluent_kafka import Producer

from tracklog.infra.log.memory import MemoryLog
from tracklog.infra.log.open import open_log
from tracklog.infra.log.port import GroupListener, GroupMember, Headers, Log, Record
from tracklog.infra.log.sqlite_schema import SPAN
from tracklog.schemas.limits import MESSAGE_BYTES_MAX
from tracklog.schemas.topics import TopicSpec

GROUP_TIMEOUT_S = 30.0


@dataclass
class LogCase:
    kind: str
    url: str
    prefix: str
    kafka_options: Mapping[str, str] = field(default_factory=dict)
    opened: list[Log] = field(default_factory=list)
    topics: int = 0

    def open(self) -> Log:
        log = open_log(self.url, kafka_options=self.kafka_options)
        self.opened.append(log)
        return log

    def topic(self, log: Log, partitions: int = 1) -> str:
        name = f"{self.prefix}.{self.topics}"
        self.topics += 1
        config = {
            "message.timestamp.type": "LogAppendTime",
            "max.message.bytes": str(MESSAGE_BYTES_MAX),
            "retention.ms": "-1",
        }
        assert log.create([TopicSpec(name, partitions, 1, config)]) == [name]
        return name

    def foreign(self, log: Log, topic: str, key: bytes | None, value: bytes | None, headers: Headers) -> None:
        """A record in partition 0 that somebody else's program wrote."""
        if self.kind == "kafka":
            producer = Producer({"bootstrap.servers": self.url.removeprefix("kafka://")})
            producer.produce(topic, value, key, 0, headers=list(headers))
            assert producer.flush(10) == 0
        elif self.kind == "sqlite":
            self._foreign_sqlite(topic, key, value)
        else:
            assert isinstance(log, MemoryLog)
            log.store.store(log.store.partition(topic, 0), 0, key, value, headers)

    def _foreign_sqlite(self, topic: str, key: bytes | None, value: bytes | None) -> None:
        connection = sqlite3.connect(self.url.removeprefix("sqlite:"))
        with connection:
            slot = connection.execute("SELECT first_slot FROM topics WHERE name = ?", (topic,)).fetchone()[0]
            offset = connection.execute("SELECT next_offset FROM partitions WHERE slot = ?", (slot,)).fetchone()[0]
            row = (slot * SPAN + offset, 0, key, value, b"\x00\x00")
            connection.execute("INSERT INTO records VALUES (?, ?, ?, ?, ?)", row)
            connection.execute("UPDATE partitions SET next_offset = next_offset + 1 WHERE slot = ?", (slot,))
        connection.close()

    def close(self) -> None:
        for log in self.opened:
            log.close()


class Recorder(GroupListener):
    """Starts every partition at `starts` (the first offset by default) and notes what it is told."""

    def __init__(self, starts: Callable[[int], int] = lambda partition: 0) -> None:
        self.starts = starts
        self.owned: set[int] = set()
        self.told: list[tuple[str, tuple[int, ...]]] = []
        self.on_revoked: Callable[[Sequence[int]], None] = lambda partitions: None

    def assigned(self, partitions: Sequence[int]) -> Mapping[int, int]:
        self.told.append(("assigned", tuple(partitions)))
        self.owned |= set(partitions)
        return {partition: self.starts(partition) for partition in partitions}

    def revoked(self, partitions: Sequence[int]) -> None:
        self.told.append(("revoked", tuple(partitions)))
        self.on_revoked(partitions)
        self.owned -= set(partitions)

    def lost(self, partitions: Sequence[int]) -> None:
        self.told.append(("lost", tuple(partitions)))
        self.owned -= set(partitions)


def drive(
    members: Sequence[GroupMember], until: Callable[[], bool], timeout_s: float = GROUP_TIMEOUT_S
) -> list[Record]:
    """Polls the members in turn until the condition holds; returns what they read."""
    deadline = time.monotonic() + timeout_s
    records: list[Record] = []
    while not until():
        assert time.monotonic() < deadline, "the group did not settle"
        for member in members:
            records += member.poll(100, 0.05)
    return records
