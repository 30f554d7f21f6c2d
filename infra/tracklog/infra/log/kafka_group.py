"""Members of a Kafka consumer group: KIP-848 where the broker offers it, else classic and cooperative."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from tracklog.infra.log.kafka_config import KafkaConfig
from tracklog.infra.log.kafka_errors import NOT_OWNED, means_no_kip_848, request_error
from tracklog.infra.log.kafka_records import fetch, take
from tracklog.infra.log.port import GroupListener, Record
from tracklog.schemas.errors import ClientFatal, LogUnavailable

_REQUEST_TIMEOUT_S: Final = 8.0
_RETRY_S: Final = 0.05
_RETRIES_MAX: Final = 20


class GroupProtocol:
    """Which group protocol the brokers offer. Found out once, by the first member that joins."""

    def __init__(self, forced: str | None) -> None:
        self.forced = forced
        self.name = forced if forced is not None else "consumer"

    def fall_back(self) -> bool:
        """True when there is another protocol to try."""
        if self.forced is not None or self.name == "classic":
            return False
        self.name = "classic"
        return True


class KafkaMember:
    """See `GroupMember`."""

    def __init__(
        self,
        config: KafkaConfig,
        protocol: GroupProtocol,
        group_id: str,
        topic: str,
        listener: GroupListener,
        is_gone: Callable[[str], bool],
    ) -> None:
        self._config = config
        self._url = config.url
        self._protocol = protocol
        self._group_id = group_id
        self._topic = topic
        self._listener = listener
        self._is_gone = is_gone
        self._positions: dict[int, int] = {}
        self._leader_epochs: dict[int, int] = {}
        self._fatal: KafkaError | None = None
        self._pause = threading.Event()
        self._closed = False
        self._consumer: Any = self._join()

    def poll(self, max_records: int, timeout_s: float) -> list[Record]:
        deadline = time.monotonic() + timeout_s
        while True:
            messages = self._fetch(max_records, max(0.0, deadline - time.monotonic()))
            if self._fatal is not None:
                self._fall_back_or_raise(self._fatal)
            records = take(messages, self._topic, self._positions, self._url, self._is_gone)
            if messages:
                self._note_leader_epoch(messages)
            if records or time.monotonic() >= deadline:
                return records

    def position(self, partition: int) -> int:
        return self._positions[partition]

    def seek(self, partition: int, offset: int) -> None:
        if partition not in self._positions:
            return
        target = TopicPartition(self._topic, partition, offset)
        for attempt in range(_RETRIES_MAX):
            try:
                self._consumer.seek(target)
                break
            except KafkaException as error:
                # A partition that was assigned a moment ago cannot be sought yet.
                if error.args[0].code() != KafkaError._STATE or attempt == _RETRIES_MAX - 1:
                    raise request_error(error.args[0], f"seeking in {self._topic}", self._url) from error
                self._pause.wait(_RETRY_S)
        self._positions[partition] = offset

    def commit(self, positions: Mapping[int, int]) -> None:
        offsets = [self._offset(p, o) for p, o in positions.items() if p in self._positions]
        for attempt in range(_RETRIES_MAX if offsets else 0):
            code = self._commit(offsets)
            if code is None:
                return
            if code in NOT_OWNED or attempt == _RETRIES_MAX - 1:
                self._config.stats.commits_dropped += 1
                return
            self._pause.wait(_RETRY_S)  # STALE_MEMBER_EPOCH: valid again after the next heartbeat

    def committed(self, partitions: Sequence[int]) -> Mapping[int, int | None]:
        asked = [TopicPartition(self._topic, p) for p in partitions]
        try:
            found = self._consumer.committed(asked, timeout=_REQUEST_TIMEOUT_S)
        except KafkaException as error:
            raise request_error(error.args[0], f"positions of group {self._group_id}", self._url) from error
        return {tp.partition: tp.offset if tp.offset >= 0 else None for tp in found}

    def pause(self, partitions: Sequence[int]) -> None:
        self._consumer.pause(self._owned(partitions))

    def resume(self, partitions: Sequence[int]) -> None:
        self._consumer.resume(self._owned(partitions))

    def close(self) -> None:
        """The listener may still commit while it is told of the revocation."""
        if not self._closed:
            self._closed = True
            self._consumer.close()

    def _join(self) -> Consumer:
        self._fatal = None
        settings = self._config.member(self._group_id, self._protocol.name)
        consumer: Consumer = self._config.build(Consumer, settings)
        consumer.subscribe([self._topic], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost)
        return consumer

    def _fetch(self, max_records: int, timeout_s: float) -> Sequence[Any]:
        try:
            messages = fetch(self._consumer, max_records, timeout_s)
        except KafkaException as error:
            if not error.args[0].fatal():
                raise request_error(error.args[0], f"reading {self._topic}", self._url) from error
            self._fatal = error.args[0]
            return ()
        for message in messages:
            event = message.error()
            if event is not None and (event.fatal() or event.code() == KafkaError._FATAL):
                self._fatal = event
        return messages if self._fatal is None else ()

    def _fall_back_or_raise(self, fatal: KafkaError) -> None:
        if not self._positions and means_no_kip_848(fatal) and self._protocol.fall_back():
            self._consumer.close()
            self._consumer = self._join()
            return
        raise ClientFatal(
            f"the member of group {self._group_id} at {self._url} cannot go on: {fatal.str()}",
            hint="end this process and start it again",
        )

    def _on_assign(self, consumer: Consumer, found: list[TopicPartition]) -> None:
        partitions = sorted(tp.partition for tp in found)
        starts = self._listener.assigned(partitions)  # also of none: others have them all
        consumer.incremental_assign([TopicPartition(self._topic, p, starts[p]) for p in partitions])
        self._positions.update({p: starts[p] for p in partitions})

    def _on_revoke(self, consumer: Consumer, found: list[TopicPartition]) -> None:
        partitions = sorted(tp.partition for tp in found)
        if partitions:
            self._listener.revoked(partitions)
        self._drop(partitions)
        consumer.incremental_unassign(found)

    def _on_lost(self, consumer: Consumer, found: list[TopicPartition]) -> None:
        partitions = sorted(tp.partition for tp in found)
        self._drop(partitions)
        if partitions:
            self._listener.lost(partitions)
        consumer.incremental_unassign(found)

    def _drop(self, partitions: Sequence[int]) -> None:
        for partition in partitions:
            self._positions.pop(partition, None)
            self._leader_epochs.pop(partition, None)

    def _owned(self, partitions: Sequence[int]) -> list[TopicPartition]:
        return [TopicPartition(self._topic, p) for p in partitions if p in self._positions]

    def _note_leader_epoch(self, messages: Sequence[Any]) -> None:
        """The last message of a batch is enough: a commit that carries an epoch is checked for truncation."""
        message = messages[-1]
        epoch = message.leader_epoch() if message.error() is None else None
        if epoch is not None:
            self._leader_epochs[message.partition()] = epoch

    def _offset(self, partition: int, offset: int) -> TopicPartition:
        epoch = self._leader_epochs.get(partition)
        if epoch is None:
            return TopicPartition(self._topic, partition, offset)
        return TopicPartition(self._topic, partition, offset, "", epoch)

    def _commit(self, offsets: list[TopicPartition]) -> int | None:
        """None when it was taken, else the code to decide by. LogUnavailable when the group cannot be reached."""
        try:
            answers = self._consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:
            return self._commit_failure(error.args[0])
        for answer in answers or ():
            if answer.error is not None:
                return self._commit_failure(answer.error)
        return None

    def _commit_failure(self, error: KafkaError) -> int:
        code = error.code()
        if code in NOT_OWNED or code == KafkaError.STALE_MEMBER_EPOCH:
            return code
        failure = request_error(error, f"commit of group {self._group_id}", self._url)
        raise failure if isinstance(failure, ClientFatal) else LogUnavailable(failure.message, hint=failure.hint)
