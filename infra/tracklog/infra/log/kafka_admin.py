"""Requests about topics: what they are, where they begin and end, and making and trimming them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress
from typing import Any, Final, TypeVar

from confluent_kafka import OFFSET_END, Consumer, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.cimpl import NewTopic

from tracklog.infra.log.kafka_config import QUICK_FETCH_WAIT_MS, KafkaConfig
from tracklog.infra.log.kafka_errors import request_error
from tracklog.infra.log.offsets import check_delete, check_partition
from tracklog.infra.log.port import Bounds, TopicInfo
from tracklog.schemas.errors import ClientFatal, LogError, LogUnavailable, SettingsError, TopicMissing
from tracklog.schemas.topics import TopicSpec, barrier_of

REQUEST_TIMEOUT_S: Final = 8.0
"""Every request ends within it; an absent broker is an error within ten seconds."""
_LEADER_POLL_S: Final = 0.05
_NO_LEADER_YET: Final = frozenset(
    {
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._TRANSPORT,
        KafkaError._DESTROY,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._UNKNOWN_TOPIC,
    }
)
"""Answers that pass by themselves: the topic is known to exist when they are met. A client that has heard nothing
for long forgets its topics, so even an unknown topic may be a silent broker."""

T = TypeVar("T")


class KafkaAdmin:
    """Thread-safe. Keeps one admin client and one consumer open: asking for bounds costs one round trip."""

    def __init__(self, config: KafkaConfig) -> None:
        self._config = config
        self._url = config.url
        self._admin: AdminClient = config.build(AdminClient, config.admin())
        self._lock = threading.Lock()
        self._watcher: Consumer | None = None
        self._closed = False
        self._counts: dict[str, int] = {}
        self._cluster_id: str | None = None
        self._waiting = threading.Event()

    def partition_count(self, topic: str) -> int:
        count = self._counts.get(topic)
        if count is None:
            count = self._counts[topic] = len(self._describe(topic).partitions)
        return count

    def bounds(self, topic: str, partition: int) -> Bounds:
        """The end is the last stable offset, because the consumer that asks is read_committed."""
        check_partition(topic, partition, self.partition_count(topic))
        what = f"bounds of {topic}, partition {partition}"
        place = TopicPartition(topic, partition)
        found = self._ask_leader(
            lambda left_s: self._consumer().get_watermark_offsets(place, timeout=left_s, cached=False), topic, what
        )
        if found is None:
            raise self._silent(what, REQUEST_TIMEOUT_S)
        return Bounds(*found)

    def ends(self, topic: str, partitions: Collection[int]) -> dict[int, int]:
        """By one request to each leader, where `bounds` takes two for each partition (measured for twelve: 0.3 ms
        instead of 9). A time of -1 asks for the last stable offset."""
        count = self.partition_count(topic)
        for one in partitions:
            check_partition(topic, one, count)
        places = [TopicPartition(topic, one, OFFSET_END) for one in partitions]

        def ask(left_s: float) -> dict[int, int]:
            found = self._consumer().offsets_for_times(places, timeout=left_s)
            for one in found:
                if one.error is not None:
                    raise KafkaException(one.error)
            return {one.partition: one.offset for one in found}

        return self._ask_leader(ask, topic, f"ends of {topic}") if places else {}

    def offset_at(self, topic: str, partition: int, timestamp_ms: int) -> int:
        bounds = self.bounds(topic, partition)
        place = TopicPartition(topic, partition, max(0, timestamp_ms))
        found = self._ask_leader(
            lambda left_s: self._consumer().offsets_for_times([place], timeout=left_s)[0],
            topic,
            f"offset by time in {topic}",
        )
        if found.error is not None:
            raise request_error(found.error, f"offset by time in {topic}", self._url)
        return found.offset if 0 <= found.offset < bounds.end else bounds.end

    def is_gone(self, topic: str) -> bool:
        """True only when a broker confirms now that there is no such topic."""
        try:
            self._describe(topic)
        except TopicMissing:
            return True
        except LogUnavailable:
            return False
        return False

    def describe(self, topic: str) -> TopicInfo:
        described = self._describe(topic)
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
        entries = self._result(
            self._admin.describe_configs([resource], request_timeout=REQUEST_TIMEOUT_S)[resource],
            f"settings of {topic}",
        )
        config = {name: entry.value for name, entry in entries.items() if entry.value is not None}
        replicas = min(len(partition.replicas) for partition in described.partitions)
        spec = TopicSpec(topic, len(described.partitions), replicas, config)
        fixed = frozenset(name for name, entry in entries.items() if entry.is_read_only)
        return TopicInfo(spec, str(described.topic_id), self._cluster(), barrier_of(config), fixed)

    def create(self, specs: Iterable[TopicSpec]) -> list[str]:
        wanted = {
            spec.name: NewTopic(
                spec.name,
                num_partitions=spec.partitions,
                replication_factor=spec.replication_factor,
                config=dict(spec.config),
            )
            for spec in specs
        }
        if not wanted:
            return []
        futures = self._admin.create_topics(
            list(wanted.values()), operation_timeout=REQUEST_TIMEOUT_S, request_timeout=REQUEST_TIMEOUT_S
        )
        created = [name for name, future in futures.items() if self._was_created(name, future)]
        for name in created:
            self._await_leaders(name)
        return created

    def delete_records(self, topic: str, before: Mapping[int, int]) -> None:
        for partition, offset in before.items():
            check_delete(topic, partition, offset, self.bounds(topic, partition))
        futures = self._admin.delete_records(
            [TopicPartition(topic, partition, offset) for partition, offset in before.items()],
            request_timeout=REQUEST_TIMEOUT_S,
        )
        for target, future in futures.items():
            self._result(future, f"deletion of records of {topic}, partition {target.partition}")

    def ping(self, timeout_s: float) -> None:
        future = self._admin.describe_cluster(request_timeout=timeout_s)
        self._cluster_id = self._result(future, "describing the cluster", timeout_s).cluster_id

    def close(self) -> None:
        with self._lock:
            watcher, self._watcher = self._watcher, None
            self._closed = True
        if watcher is not None:
            watcher.close()

    def _consumer(self) -> Consumer:
        with self._lock:
            if self._closed:
                raise ClientFatal(f"the log {self._url} is closed")
            if self._watcher is None:
                reader = self._config.reader(fetch_wait_ms=QUICK_FETCH_WAIT_MS)
                self._watcher = self._config.build(Consumer, reader)
            return self._watcher

    def _cluster(self) -> str:
        if self._cluster_id is None:
            self.ping(REQUEST_TIMEOUT_S)
        return self._cluster_id or ""

    def _describe(self, topic: str) -> Any:
        """DescribeTopics, because asking for metadata may create the topic that is asked for."""
        futures = self._admin.describe_topics(TopicCollection([topic]), request_timeout=REQUEST_TIMEOUT_S)
        described = self._result(futures[topic], f"the topic {topic}")
        if not described.partitions:
            raise TopicMissing(f"the topic {topic} is not at {self._url}", hint="create it: tracklog topics apply")
        return described

    def _was_created(self, name: str, future: Any) -> bool:
        try:
            future.result(REQUEST_TIMEOUT_S + 1)
        except FutureTimeoutError:
            raise self._silent(f"creating the topic {name}", REQUEST_TIMEOUT_S) from None
        except KafkaException as error:
            code = error.args[0].code()
            if code == KafkaError.TOPIC_ALREADY_EXISTS:
                return False
            if code in (
                KafkaError.INVALID_REPLICATION_FACTOR,
                KafkaError.INVALID_PARTITIONS,
                KafkaError.INVALID_CONFIG,
                KafkaError.TOPIC_EXCEPTION,
                KafkaError.POLICY_VIOLATION,
            ):
                raise SettingsError(f"the topic {name} cannot be created: {error.args[0].str()}") from error
            raise self._failed(error.args[0], f"creating the topic {name}") from error
        return True

    def _await_leaders(self, topic: str) -> None:
        """A new topic is announced before all of its partitions can be written to."""
        deadline = time.monotonic() + REQUEST_TIMEOUT_S
        while True:
            try:
                if all(partition.leader is not None for partition in self._describe(topic).partitions):
                    return
            except TopicMissing:
                if time.monotonic() >= deadline:
                    raise
            if time.monotonic() >= deadline:
                raise self._silent(f"the leaders of {topic}", REQUEST_TIMEOUT_S)
            self._waiting.wait(_LEADER_POLL_S)

    def _ask_leader(self, ask: Callable[[float], T], topic: str, what: str) -> T:
        """Asks again while the partition has no leader that knows it is one: after creation, after a failover."""
        deadline = time.monotonic() + REQUEST_TIMEOUT_S
        while True:
            left_s = max(0.1, deadline - time.monotonic())
            try:
                return ask(left_s)
            except KafkaException as error:
                if error.args[0].code() not in _NO_LEADER_YET:
                    raise self._failed(error.args[0], what) from error
                if time.monotonic() >= deadline:
                    raise LogUnavailable(
                        f"{what}: no leader answered at {self._url} within {REQUEST_TIMEOUT_S:g} s:"
                        f" {self._reason() or error.args[0].str()}"
                    ) from error
            finally:
                self._consumer().poll(0)  # hands out log lines and errors, which would pile up
            self._refresh(topic, max(0.1, deadline - time.monotonic()))
            self._waiting.wait(_LEADER_POLL_S)

    def _refresh(self, topic: str, timeout_s: float) -> None:
        """The client keeps "no such partition" for long after the broker is back, unless it is made to ask anew."""
        with suppress(KafkaException):  # counted by the error callback; the next question has the last word
            self._consumer().list_topics(topic, timeout=timeout_s)

    def _result(self, future: Any, what: str, timeout_s: float = REQUEST_TIMEOUT_S) -> Any:
        try:
            return future.result(timeout_s + 1)
        except FutureTimeoutError:
            raise self._silent(what, timeout_s) from None
        except KafkaException as error:
            raise self._failed(error.args[0], what) from error
        finally:
            self._admin.poll(0)

    def _failed(self, error: KafkaError, what: str) -> LogError:
        return request_error(error, what, self._url, self._reason())

    def _silent(self, what: str, timeout_s: float) -> LogUnavailable:
        reason = self._reason()
        return LogUnavailable(
            f"{what}: {self._url} did not answer within {timeout_s:g} s{': ' if reason else ''}{reason}",
            hint="is the broker up and reachable?",
        )

    def _reason(self) -> str:
        """The clients hand out what they know only when polled."""
        self._admin.poll(0)
        return self._config.reason
