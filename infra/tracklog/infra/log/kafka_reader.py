"""Readers of partitions assigned by hand, over consumers that are kept and used again.

A consumer has one fetch at a broker at a time, and a new assignment waits for it. So read-backs use consumers
whose fetches wait 2 ms at most (measured: produce and read back 1.5 ms; with the default wait, 500 ms), and take
the one that has rested longest. A reader that follows a partition has a patient consumer, whose fetch waits at the
broker until something comes: the quick ones ask 500 times a second, of which all others have less. A reader that turns
out to follow moves to one.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from tracklog.infra.log.kafka_config import PATIENT_FETCH_WAIT_MS, QUICK_FETCH_WAIT_MS, KafkaConfig
from tracklog.infra.log.kafka_errors import FORBIDDEN, request_error
from tracklog.infra.log.kafka_records import fetch, take
from tracklog.infra.log.port import Record
from tracklog.schemas.errors import ClientFatal, LogError

_KEPT_MAX: Final = 4
_REST_S: Final = 2 * QUICK_FETCH_WAIT_MS / 1000
"""After this long a consumer has no fetch of its former assignment left."""
_FOLLOWS_AFTER_S: Final = 1.0
_FORBIDDEN: Final = FORBIDDEN - {KafkaError.GROUP_AUTHORIZATION_FAILED}
"""The client asks for the coordinator of its group, which it has in name only: who may read needs no rights on it."""


class ConsumerPool:
    """Idle quick consumers, the one that has rested longest first."""

    def __init__(self, config: KafkaConfig, is_gone: Callable[[str], bool]) -> None:
        self.config = config
        self.is_gone = is_gone
        self._lock = threading.Lock()
        self._idle: deque[tuple[float, Consumer]] = deque()
        self._kept = 0
        self._closed = False

    def take(self) -> Consumer:
        with self._lock:
            if self._closed:
                raise ClientFatal(f"the log {self.config.url} is closed")
            if self._idle:
                rested_s = time.monotonic() - self._idle[0][0]
                if rested_s >= _REST_S or self._kept >= _KEPT_MAX:
                    return self._idle.popleft()[1]
            self._kept += 1
        return self.make(QUICK_FETCH_WAIT_MS)

    def make(self, fetch_wait_ms: int) -> Consumer:
        consumer: Consumer = self.config.build(Consumer, self.config.reader(fetch_wait_ms=fetch_wait_ms))
        return consumer

    def give_back(self, consumer: Consumer) -> None:
        with self._lock:
            if not self._closed and len(self._idle) < _KEPT_MAX:
                consumer.unassign()
                self._idle.append((time.monotonic(), consumer))
                return
            self._kept -= 1
        consumer.close()

    def drop(self, consumer: Consumer) -> None:
        """One that failed for good: whoever took it next would fail as well."""
        with self._lock:
            self._kept -= 1
        consumer.close()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            idle, self._idle = list(self._idle), deque()
        for _, consumer in idle:
            consumer.close()


class KafkaReader:
    """See `Reader`. A broker that cannot be reached is no error here: nothing comes until it is back."""

    def __init__(self, pool: ConsumerPool, topic: str, starts: Mapping[int, int], *, follows: bool = False) -> None:
        self._pool = pool
        self._topic = topic
        self._url = pool.config.url
        self._positions = dict(starts)
        self._consumer: Any = pool.make(PATIENT_FETCH_WAIT_MS) if follows else pool.take()
        self._patient, self._is_dead = follows, False
        self._idle_since_s: float | None = None
        self._assign()

    def poll(self, max_records: int, timeout_s: float) -> list[Record]:
        deadline = time.monotonic() + timeout_s
        while True:
            left_s = max(0.0, deadline - time.monotonic())
            before = sum(self._positions.values())
            messages = self._fetch(max_records, left_s)
            records = take(messages, self._topic, self._positions, self._url, self._pool.is_gone, _FORBIDDEN)
            moved = sum(self._positions.values()) != before
            if records or moved:
                self._idle_since_s = None
                return records
            if time.monotonic() >= deadline:
                self._rest()
                return []

    def position(self, partition: int) -> int:
        return self._positions[partition]

    def seek(self, partition: int, offset: int) -> None:
        self._positions[partition] = offset
        self._assign()

    def close(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is None:
            return
        if self._patient:
            consumer.close()
        elif self._is_dead:
            self._pool.drop(consumer)
        else:
            self._pool.give_back(consumer)

    def _fetch(self, max_records: int, timeout_s: float) -> Sequence[Any]:
        """A fatal error is raised by the client's poll."""
        try:
            return fetch(self._consumer, max_records, timeout_s)
        except KafkaException as error:
            raise self._failed(error) from error

    def _assign(self) -> None:
        try:
            self._consumer.assign([TopicPartition(self._topic, p, o) for p, o in self._positions.items()])
        except KafkaException as error:
            raise self._failed(error) from error

    def _failed(self, error: KafkaException) -> LogError:
        self._is_dead = self._is_dead or error.args[0].fatal()
        return request_error(error.args[0], f"reading {self._topic}", self._url)

    def _rest(self) -> None:
        """Nothing came: after a while, wait at the broker instead of asking 500 times a second."""
        now_s = time.monotonic()
        if self._patient:
            return
        if self._idle_since_s is None:
            self._idle_since_s = now_s
        elif now_s - self._idle_since_s >= _FOLLOWS_AFTER_S:
            quick, self._consumer = self._consumer, self._pool.make(PATIENT_FETCH_WAIT_MS)
            self._patient = True
            self._assign()
            self._pool.give_back(quick)
