"""`kafka://HOST:PORT`: the log on Apache Kafka, by confluent-kafka (DESIGN §5, §6)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from tracklog.infra.log.kafka_admin import KafkaAdmin
from tracklog.infra.log.kafka_config import KafkaConfig, KafkaStats
from tracklog.infra.log.kafka_group import GroupProtocol, KafkaMember
from tracklog.infra.log.kafka_producer import KafkaProducers
from tracklog.infra.log.kafka_reader import ConsumerPool, KafkaReader
from tracklog.infra.log.offsets import check_partition
from tracklog.infra.log.partitioner import partition_of
from tracklog.infra.log.port import Bounds, Delivered, GroupListener, Headers, TopicInfo
from tracklog.infra.log.record_size import RECORD_BYTES_MAX, check_record_size
from tracklog.schemas.errors import ClientFatal, InvalidTrajectoryId
from tracklog.schemas.topics import TopicSpec

CLOSE_TIMEOUT_S: Final = 10.0
_SURELY_FITS_BYTES: Final = RECORD_BYTES_MAX // 2
"""Below it the size is left to librdkafka, which counts headers faster than Python."""


class KafkaLog:
    """See `Log`. `options` are librdkafka settings (SASL, TLS, time-outs); those that a guarantee rests on are
    refused with SettingsError. Opening does not wait for a broker: `ping` does.

    Three options are ours: `group.protocol` (`consumer` or `classic`) forces the group protocol, which is otherwise
    found out by the first member that joins; `oauth.token` names where tokens come from; `producer.connections` is how
    many connections to each broker the appends go over.
    """

    def __init__(self, servers: str, *, options: Mapping[str, str]) -> None:
        self.stats: Final = KafkaStats()
        self._config = KafkaConfig(servers, options, self.stats)
        self._admin = KafkaAdmin(self._config)
        self._pool = ConsumerPool(self._config, self._admin.is_gone)
        self._protocol = GroupProtocol(self._config.forced_protocol)
        self._counts: dict[str, int] = {}
        self._producers = KafkaProducers(self._config)
        self._closed = False

    @property
    def url(self) -> str:
        return self._config.url

    def append(self, topic: str, key: bytes, value: bytes, headers: Headers, delivered: Delivered) -> None:
        if not key:
            raise InvalidTrajectoryId("the record key is empty", hint="the key is the trajectory id, in UTF-8")
        if len(value) > _SURELY_FITS_BYTES:
            check_record_size(topic, key, value, headers)
        partition = partition_of(key, self._counts.get(topic) or self._learn(topic))
        self._producers.of(partition).append(topic, partition, key, value, headers, delivered)

    def flush(self, timeout_s: float) -> int:
        return self._producers.flush(timeout_s)

    def partition_count(self, topic: str) -> int:
        return self._admin.partition_count(topic)

    def bounds(self, topic: str, partition: int) -> Bounds:
        return self._admin.bounds(topic, partition)

    def ends(self, topic: str, partitions: Collection[int]) -> dict[int, int]:
        return self._admin.ends(topic, partitions)

    def offset_at(self, topic: str, partition: int, timestamp_ms: int) -> int:
        return self._admin.offset_at(topic, partition, timestamp_ms)

    def reader(self, topic: str, starts: Mapping[int, int], *, follows: bool = False) -> KafkaReader:
        count = self.partition_count(topic)
        for partition in starts:
            check_partition(topic, partition, count)
        return KafkaReader(self._pool, topic, starts, follows=follows)

    def group(self, group_id: str, topic: str, listener: GroupListener) -> KafkaMember:
        self.partition_count(topic)
        return KafkaMember(self._config, self._protocol, group_id, topic, listener, self._admin.is_gone)

    def describe(self, topic: str) -> TopicInfo:
        return self._admin.describe(topic)

    def create(self, specs: Iterable[TopicSpec]) -> list[str]:
        return self._admin.create(specs)

    def delete_records(self, topic: str, before: Mapping[int, int]) -> None:
        self._admin.delete_records(topic, before)

    def ping(self, timeout_s: float) -> None:
        if self._closed:
            raise ClientFatal(f"the log {self.url} is closed")
        self._producers.check_alive()
        self._admin.ping(timeout_s)

    def close(self) -> None:
        self._closed = True
        self._producers.close(CLOSE_TIMEOUT_S)
        self._pool.close()
        self._admin.close()

    def _learn(self, topic: str) -> int:
        """A produce to a topic that is missing may create it on some brokers, so it is asked for first."""
        count = self._counts[topic] = self.partition_count(topic)
        return count
