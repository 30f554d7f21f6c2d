"""The producers of a process, and the threads that hand out their delivery reports.

A broker takes in one request of a connection at a time, and answers it when the record is on its disk or its replicas;
a request holds records of one partition. So behind one connection the partitions wait for one another, and what waits
becomes fewer and larger requests. Which of the two counts is measured: see DESIGN §5.
"""

from __future__ import annotations

import logging
import threading
import time
from functools import partial
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from tracklog.infra.log.kafka_config import KafkaConfig
from tracklog.infra.log.kafka_errors import MISSING, TOO_LARGE, append_error
from tracklog.infra.log.kafka_lanes import Lane, Lanes, Waiting
from tracklog.infra.log.port import Delivered, Headers, Position
from tracklog.schemas.errors import (
    AppendError,
    AppendRefused,
    AppendUnknown,
    ClientFatal,
    LogQueueFull,
    RecordTooLarge,
    TopicMissing,
    TracklogError,
)

logger = logging.getLogger(__name__)

_POLL_S: Final = 0.1
_DRAIN_S: Final = 5.0
"""How long purged records may take to be reported; librdkafka does it at once."""
SERVE_EVERY: Final = 64
"""A busy appender serves reports itself every so many appends. Each report takes the interpreter's lock, for which
the report thread would wait its switch interval (5 ms) behind a thread that computes."""
REBUILDS_MAX: Final = 5
"""Producers made in a row without one delivery between them, before the process must end."""


class KafkaProducers:
    """As many as `connections` says, each made when it is needed. A partition's appends go through the same one, which
    keeps their order. Thread-safe."""

    def __init__(self, config: KafkaConfig) -> None:
        self._config = config
        self._lock = threading.Lock()
        self._made: list[KafkaProducer | None] = [None] * config.connections
        self._closed = False

    def of(self, partition: int) -> KafkaProducer:
        """Raises ClientFatal when they are closed."""
        place = partition % len(self._made)
        producer = self._made[place]
        return producer if producer is not None else self._make(place)

    def check_alive(self) -> None:
        """Raises ClientFatal once one of them takes nothing any more."""
        for producer in self._all:
            producer.check_alive()

    def flush(self, timeout_s: float) -> int:
        """How many appends are still open after at most that long."""
        deadline = time.monotonic() + timeout_s
        return sum(producer.flush(max(0.0, deadline - time.monotonic())) for producer in self._all)

    def close(self, timeout_s: float) -> None:
        """Delivers within the bound, then gives up what is left: it ends as AppendUnknown."""
        with self._lock:
            self._closed = True
        self.flush(timeout_s)
        for producer in self._all:
            producer.end()
        for producer in self._all:
            producer.join()

    @property
    def _all(self) -> list[KafkaProducer]:
        return [producer for producer in self._made if producer is not None]

    def _make(self, place: int) -> KafkaProducer:
        with self._lock:
            if self._closed:
                raise ClientFatal(f"the log {self._config.url} is closed")
            producer = self._made[place]
            if producer is None:
                producer = self._made[place] = KafkaProducer(self._config)
            return producer


class KafkaProducer:
    """Reports come from one thread. A fatal error of the client makes a new one: what was open ends as
    AppendUnknown, and appends meanwhile raise LogQueueFull."""

    def __init__(self, config: KafkaConfig) -> None:
        self._config = config
        self._url = config.url
        self._fatal: KafkaError | None = None
        self._dead: BaseException | None = None
        self._rebuilds = 0
        self._unserved = 0
        self._closing = False
        self._reported = threading.Condition()
        self._settings = config.producer()
        self._records_max = int(self._settings["queue.buffering.max.messages"])
        self._bytes_max = int(self._settings["queue.buffering.max.kbytes"]) * 1024
        self._lanes = Lanes()
        self._is_full = False
        self._client = self._make()
        self._thread = threading.Thread(target=self._run, name="tracklog-kafka-delivery", daemon=True)
        self._thread.start()

    def append(
        self, topic: str, partition: int, key: bytes, value: bytes, headers: Headers, delivered: Delivered
    ) -> None:
        """`partition` is that of the key, which the client finds by itself."""
        record = Waiting(topic, key, value, headers, delivered)
        lanes = self._lanes
        with lanes.lock:
            if self._fatal is not None or self._closing or self._dead is not None:
                raise self._not_now()
            lane = lanes.of(topic, partition)
            if lanes.records or not lane.is_open:
                self._check_room(record)
            if lane.is_open:
                self._produce(lane, record)
            else:
                lanes.wait(lane, record)
        self._unserved += 1
        if self._unserved >= SERVE_EVERY:
            self._unserved = 0
            self._poll(0.0)
            self._hand_on()

    def check_alive(self) -> None:
        """Raises ClientFatal once it takes nothing any more. One that is being made anew is alive."""
        if self._dead is not None or self._closing:
            raise self._not_now()

    def flush(self, timeout_s: float) -> int:
        with self._reported:
            self._reported.wait_for(lambda: not self._open, timeout_s)
            return self._open

    def end(self) -> None:
        """Takes nothing any more; what is left is given up."""
        self._closing = True

    def join(self) -> None:
        """After `end`: until what was left is given up."""
        self._thread.join(_DRAIN_S + 2 * _POLL_S)

    @property
    def _open(self) -> int:
        """Appends without a report."""
        return len(self._client) + self._lanes.records

    def _make(self) -> Any:
        return self._config.build(Producer, self._settings)

    def _produce(self, lane: Lane, record: Waiting) -> None:
        """Hands a record to the client, under the lanes' lock. Raises LogQueueFull, and what is not queued for good."""
        topic, key, value, headers, delivered = record
        report = partial(self._report, lane, delivered)
        try:
            self._client.produce(topic, value, key, on_delivery=report, headers=list(headers))
        except BufferError:
            raise self._full() from None
        except KafkaException as error:
            raise self._not_queued(error.args[0], topic) from error
        lane.under_way += 1

    def _check_room(self, record: Waiting) -> None:
        if self._open >= self._records_max or self._lanes.size_bytes + record.size_bytes > self._bytes_max:
            raise self._full()

    def _hand_on(self) -> None:
        """Gives the client what has waited for reports that came."""
        refused: list[tuple[Waiting, TracklogError]] = []
        while self._lanes.any_due and not self._is_full:
            with self._lanes.lock:
                for lane in self._lanes.due():
                    self._hand_over(lane, refused)
        for record, error in refused:
            self._tell(record.delivered, None, error if isinstance(error, AppendError) else self._given_up(record))

    def _hand_over(self, lane: Lane, refused: list[tuple[Waiting, TracklogError]]) -> None:
        for _ in range(lane.room):
            record = self._lanes.next(lane)
            try:
                self._produce(lane, record)
            except LogQueueFull:
                self._lanes.put_back(lane, record)
                self._is_full = True
                return
            except TracklogError as error:
                refused.append((record, error))
        if lane.waiting and not lane.under_way:  # no report will come for it
            self._lanes.again(lane)

    def _given_up(self, record: Waiting) -> AppendUnknown:
        return AppendUnknown(
            f"an append to {record.topic} at {self._url} was given up with those before it",
            hint="read back, or append the same bytes again",
        )

    def _report(self, lane: Lane, delivered: Delivered, error: KafkaError | None, message: Message) -> None:
        self._lanes.reported(lane)
        if error is None:
            self._rebuilds = 0
            self._tell(delivered, Position(message.partition(), message.offset(), message.timestamp()[1]), None)  # type: ignore[arg-type]
        else:
            failure = append_error(error, message.topic() or "", self._url)
            self._tell(delivered, None, failure)
            for behind in () if failure.definite else self._lanes.lose(lane):
                self._tell(behind.delivered, None, self._given_up(behind))

    def _tell(self, delivered: Delivered, position: Position | None, error: AppendError | None) -> None:
        try:
            delivered(position, error)
        except Exception as broken:
            logger.exception("a delivery callback raised: the log %s is finished", self._url)
            self._dead = broken

    def _run(self) -> None:
        try:
            while not self._closing and self._dead is None:
                served = self._poll()
                self._is_full = False
                self._hand_on()
                if self._fatal is not None:
                    self._rebuild(self._fatal)
                if served:
                    self._wake()
        except BaseException as error:
            self._dead = error
            raise
        finally:
            self._give_up()
            self._wake()

    def _poll(self, wait_s: float = _POLL_S) -> bool:
        """True when something was reported. A fatal error is raised here by the client, not given to `error_cb`."""
        try:
            return bool(self._client.poll(wait_s))
        except KafkaException as error:
            if not error.args[0].fatal():
                raise
            self._fatal = error.args[0]
            self._config.note_error(error.args[0])
            return True

    def _rebuild(self, fatal: KafkaError) -> None:
        logger.error("fatal error of the producer of %s, making a new one: %s", self._url, fatal.str())
        self._give_up()
        self._rebuilds += 1
        self._config.stats.producer_rebuilds += 1
        if self._rebuilds > REBUILDS_MAX:
            self._dead = ClientFatal(f"{REBUILDS_MAX} producers in a row failed: {fatal.str()}")
            return
        self._client = self._make()
        self._fatal = None

    def _give_up(self) -> None:
        """Ends everything open. What was sent may be stored, and so may what is queued: a record whose request
        timed out goes back into the queue."""
        deadline = time.monotonic() + _DRAIN_S
        self._client.purge(in_queue=True, in_flight=True)
        while len(self._client) and time.monotonic() < deadline:
            self._poll()
        for record in self._lanes.give_up():
            self._tell(record.delivered, None, self._given_up(record))

    def _wake(self) -> None:
        with self._reported:
            self._reported.notify_all()

    def _full(self) -> LogQueueFull:
        return LogQueueFull(
            f"the producer of {self._url} holds as many records as it may", hint="wait and append this record again"
        )

    def _not_now(self) -> TracklogError:
        if self._dead is not None:
            return ClientFatal(f"the producer of {self._url} has ended: {self._dead}")
        if self._closing:
            return ClientFatal(f"the log {self._url} is closed")
        return LogQueueFull(f"the producer of {self._url} is being made anew", hint="append this record again")

    def _not_queued(self, error: KafkaError, topic: str) -> TracklogError:
        """Errors raised by the call itself: nothing was queued, so all of them are definite."""
        code = error.code()
        if error.fatal() or code == KafkaError._FATAL:
            self._fatal = error
            return self._not_now()
        if code in TOO_LARGE:
            return RecordTooLarge(f"a record for {topic} exceeds what {self._url} takes: {error.str()}")
        if code in MISSING:
            return TopicMissing(f"the topic {topic} is not at {self._url}", hint="create it: tracklog topics apply")
        return AppendRefused(f"{self._url} refused a record for {topic}: {error.str()}")
