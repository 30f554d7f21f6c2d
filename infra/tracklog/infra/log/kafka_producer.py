"""The producers of a process, and the threads that hand out their delivery reports.

A broker takes in one request of a connection at a time, and answers it when the record is on its disk or its replicas;
a request holds records of one partition. So behind one connection the partitions wait for one another: at 1,000 appends
a second over 12 partitions, each append written to the disk, an append took 102 ms, and 4 ms over four connections.
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
from tracklog.infra.log.port import Delivered, Headers, Position
from tracklog.schemas.errors import AppendRefused, ClientFatal, LogQueueFull, RecordTooLarge, TopicMissing

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
        """See `KafkaProducer.close`; the bound is for all of them."""
        with self._lock:
            self._closed = True
        self.flush(timeout_s)
        for producer in self._all:
            producer.end()
        for producer in self._all:
            producer.close(0.0)

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
        self._client = self._make()
        self._thread = threading.Thread(target=self._run, name="tracklog-kafka-delivery", daemon=True)
        self._thread.start()

    def append(self, topic: str, key: bytes, value: bytes, headers: Headers, delivered: Delivered) -> None:
        if self._fatal is not None or self._closing or self._dead is not None:
            raise self._not_now()
        try:
            self._client.produce(topic, value, key, on_delivery=partial(self._report, delivered), headers=list(headers))
        except BufferError:
            raise LogQueueFull(
                f"the producer of {self._url} holds as many records as it may",
                hint="wait and append this record again",
            ) from None
        except KafkaException as error:
            raise self._not_queued(error.args[0], topic) from error
        self._unserved += 1
        if self._unserved >= SERVE_EVERY:
            self._unserved = 0
            self._client.poll(0)

    def check_alive(self) -> None:
        """Raises ClientFatal once it takes nothing any more. One that is being made anew is alive."""
        if self._dead is not None or self._closing:
            raise self._not_now()

    def flush(self, timeout_s: float) -> int:
        with self._reported:
            self._reported.wait_for(lambda: not len(self._client), timeout_s)
            return len(self._client)

    def end(self) -> None:
        """Takes nothing any more; what is left is given up."""
        self._closing = True

    def close(self, timeout_s: float) -> None:
        """Delivers within the bound, then gives up what is left: it ends as AppendUnknown."""
        if self._thread.is_alive():
            self.flush(timeout_s)
        self.end()
        self._thread.join(_DRAIN_S + 2 * _POLL_S)

    def _make(self) -> Any:
        return self._config.build(Producer, self._config.producer())

    def _report(self, delivered: Delivered, error: KafkaError | None, message: Message) -> None:
        try:
            if error is None:
                self._rebuilds = 0
                position = Position(message.partition(), message.offset(), message.timestamp()[1])  # type: ignore[arg-type]
                delivered(position, None)
            else:
                delivered(None, append_error(error, message.topic() or "", self._url))
        except Exception as broken:
            logger.exception("a delivery callback raised: the log %s is finished", self._url)
            self._dead = broken

    def _run(self) -> None:
        try:
            while not self._closing and self._dead is None:
                served = self._poll()
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

    def _poll(self) -> bool:
        """True when something was reported. A fatal error is raised here by the client, not given to `error_cb`."""
        try:
            return bool(self._client.poll(_POLL_S))
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

    def _wake(self) -> None:
        with self._reported:
            self._reported.notify_all()

    def _not_now(self) -> Exception:
        if self._dead is not None:
            return ClientFatal(f"the producer of {self._url} has ended: {self._dead}")
        if self._closing:
            return ClientFatal(f"the log {self._url} is closed")
        return LogQueueFull(f"the producer of {self._url} is being made anew", hint="append this record again")

    def _not_queued(self, error: KafkaError, topic: str) -> Exception:
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
