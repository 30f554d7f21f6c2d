"""Settings of the Kafka clients: all that a guarantee rests on is fixed here, the rest may be given."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, ThrottleEvent

from tracklog.infra.log.kafka_token import Token, token_source
from tracklog.schemas.errors import LogUnavailable, SettingsError
from tracklog.schemas.limits import MESSAGE_BYTES_MAX

DELIVERY_TIMEOUT_MS: Final = 120_000
"""Past it an append ends as AppendUnknown. Long, because a broker that restarts is back within a minute."""
SOCKET_TIMEOUT_MS: Final = 10_000
MAX_POLL_INTERVAL_MS: Final = 300_000
QUICK_FETCH_WAIT_MS: Final = 2
"""How long a fetch waits at the broker for a read-back. An assignment has to wait for the fetch before it."""
PATIENT_FETCH_WAIT_MS: Final = 250
"""The same for a reader that follows a partition: four requests a second when nothing comes."""

_FIXED_WHY: Final[Mapping[str, str]] = {
    "bootstrap.servers": "the URL names the brokers",
    "metadata.broker.list": "the URL names the brokers",
    "acks": "an acknowledgement must mean all in-sync replicas",
    "request.required.acks": "an acknowledgement must mean all in-sync replicas",
    "enable.idempotence": "retries of the client must not store a record twice",
    "enable.gapless.guarantee": "a fatal error is repaired by a new producer",
    "max.in.flight": "order per key rests on it",
    "max.in.flight.requests.per.connection": "order per key rests on it",
    "message.send.max.retries": "retries end with the delivery time-out",
    "retries": "retries end with the delivery time-out",
    "transactional.id": "nothing of ours uses transactions",
    "partitioner": "every client must put a key into the same partition",
    "partitioner_cb": "every client must put a key into the same partition",
    "message.max.bytes": "the record limit is fixed",
    "delivery.report.only.error": "every append needs its report",
    "dr.cb": "every append needs its report",
    "dr.msg.cb": "every append needs its report",
    "isolation.level": "all readers are read_committed",
    "enable.auto.commit": "positions are committed explicitly",
    "auto.commit.enable": "positions are committed explicitly",
    "enable.auto.offset.store": "positions are committed explicitly",
    "auto.offset.reset": "a trimmed position must be an error",
    "enable.partition.eof": "a position passes control records by it",
    "allow.auto.create.topics": "topics are created on purpose",
    "group.id": "the role names the group",
    "group.instance.id": "static members stop the new process, not the old one",
    "partition.assignment.strategy": "the group protocol settles it",
    "group.remote.assignor": "the group protocol settles it",
}
_CLASSIC_ONLY: Final = frozenset({"session.timeout.ms", "heartbeat.interval.ms", "group.protocol.type"})
_PROTOCOLS: Final = ("consumer", "classic")
OAUTH_TOKEN: Final = "oauth.token"
"""Not an option of the client: names where its tokens come from (`kafka_token`)."""
CONNECTIONS: Final = "producer.connections"
"""Not an option of the client: over how many of them the appends of a process go (`kafka_producer`)."""
CONNECTIONS_DEFAULT: Final = 1
QUEUE_RECORDS_MAX: Final = 100_000
QUEUE_KBYTES_MAX: Final = 262_144
"""Of one process: each of its producers has its share."""
_QUEUE_RECORDS: Final = "queue.buffering.max.messages"
_REASON_S: Final = 30.0
"""An error older than this no longer explains why nobody answers; a broken connection is tried every two seconds."""


@dataclass(slots=True)
class KafkaStats:
    """What the clients of one log have met since it was opened; counters only grow."""

    errors: int = 0
    last_error: str = ""
    throttled: int = 0
    throttled_ms: int = 0
    producer_rebuilds: int = 0
    commits_dropped: int = 0


class LinesForDebugging(logging.Filter):
    """Lowers the lines of librdkafka: it writes hundreds of them for one broker that is down. What they say that
    matters comes by `error_cb`, is counted in KafkaStats and given as the reason in our own errors."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.levelno, record.levelname = logging.DEBUG, "DEBUG"
        return logging.getLogger(record.name).isEnabledFor(logging.DEBUG)


client_logger: Final = logging.getLogger("tracklog.kafka.client")
client_logger.addFilter(LinesForDebugging())


class KafkaConfig:
    """Makes the configuration of each kind of client. Raises SettingsError for options that may not be given.

    The values of options never appear in messages: they may be secrets.
    """

    def __init__(self, servers: str, options: Mapping[str, str], stats: KafkaStats) -> None:
        self.servers = _checked_servers(servers)
        self.stats = stats
        self._reason: tuple[float, str] | None = None
        self._options = dict(options)
        for name in self._options:
            if name in _FIXED_WHY:
                raise SettingsError(f"the Kafka option {name} cannot be set", hint=_FIXED_WHY[name])
        protocol = self._options.pop("group.protocol", None)
        if protocol is not None and protocol not in _PROTOCOLS:
            raise SettingsError(f"group.protocol {protocol!r} is unknown", hint=f"known are {', '.join(_PROTOCOLS)}")
        self.forced_protocol = protocol
        self.connections: Final = _count(CONNECTIONS, self._options.pop(CONNECTIONS, str(CONNECTIONS_DEFAULT)))
        records = _count(_QUEUE_RECORDS, self._options.pop(_QUEUE_RECORDS, str(QUEUE_RECORDS_MAX)))
        self._queue_records: Final = max(1, records // self.connections)
        token = self._options.pop(OAUTH_TOKEN, None)
        self._token = token_source(token) if token is not None else None

    @property
    def url(self) -> str:
        return f"kafka://{self.servers}"

    def admin(self) -> dict[str, Any]:
        return self._common()

    def producer(self) -> dict[str, Any]:
        """Idempotent, so acks=all and at most five requests in flight. Batches form while requests are in
        flight: with linger 0 a single append is not delayed and a busy producer still sends full batches."""
        tunable = {
            "linger.ms": 0,
            "compression.type": "zstd",
            "queue.buffering.max.kbytes": QUEUE_KBYTES_MAX // self.connections,
            "delivery.timeout.ms": DELIVERY_TIMEOUT_MS,
        }
        fixed = {
            "enable.idempotence": True,
            "acks": "all",
            "partitioner": "murmur2_random",
            _QUEUE_RECORDS: self._queue_records,
            "message.max.bytes": MESSAGE_BYTES_MAX,
            "throttle_cb": self._throttled,
        }
        return tunable | self._common() | fixed

    def reader(self, *, fetch_wait_ms: int) -> dict[str, Any]:
        """For partitions assigned by hand. librdkafka wants a group id even so; nothing is committed to it."""
        return self._consumer() | {
            "group.id": "tracklog-no-group",
            "fetch.wait.max.ms": fetch_wait_ms,
            "queued.max.messages.kbytes": 16_384,
        }

    def member(self, group_id: str, protocol: str) -> dict[str, Any]:
        config = {"max.poll.interval.ms": MAX_POLL_INTERVAL_MS, "fetch.wait.max.ms": PATIENT_FETCH_WAIT_MS}
        config |= self._consumer() | {"group.id": group_id, "group.protocol": protocol}
        if protocol == "classic":
            return config | {"partition.assignment.strategy": "cooperative-sticky"}
        return {name: value for name, value in config.items() if name not in _CLASSIC_ONLY}

    def build(self, make: Callable[..., Any], config: Mapping[str, Any]) -> Any:
        """A client; SettingsError, without values, for what librdkafka does not take. LogUnavailable when the source of
        tokens gave none in time: it may be away for a while, as a broker may."""
        try:
            return make(config, logger=client_logger)
        except KafkaException as error:
            if self._token is not None and error.args[0].code() == KafkaError.SASL_AUTHENTICATION_FAILED:
                why = f": {self.reason}" if self.reason else ", or one that has ended"
                raise LogUnavailable(
                    f"{self.url} asks for a token, and its source gave none{why}",
                    hint="log.oauth_token names where tokens come from",
                ) from None
            raise SettingsError(f"a Kafka option is not usable: {self.redact(error.args[0].str())}") from None

    def redact(self, text: str) -> str:
        for value in self._options.values():
            if len(value) > 2:
                text = text.replace(value, "***")
        return text

    def _consumer(self) -> dict[str, Any]:
        return (
            {"fetch.queue.backoff.ms": 10}
            | self._common()
            | {
                "isolation.level": "read_committed",
                "auto.offset.reset": "error",
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "enable.partition.eof": True,
                "allow.auto.create.topics": False,
            }
        )

    def _common(self) -> dict[str, Any]:
        tunable: dict[str, Any] = {
            "client.id": "tracklog",
            "socket.timeout.ms": SOCKET_TIMEOUT_MS,
            "socket.keepalive.enable": True,
            "reconnect.backoff.ms": 50,
            "reconnect.backoff.max.ms": 2_000,
        }
        ours: dict[str, Any] = {"bootstrap.servers": self.servers, "error_cb": self.note_error}
        if self._token is not None:
            ours["oauth_cb"] = self._asked
        return tunable | self._options | ours

    def _asked(self, config: str) -> Token:
        """For the client, which swallows what its source of tokens raises."""
        assert self._token is not None
        try:
            return self._token(config)
        except Exception as error:
            self._reason = (time.monotonic(), self.redact(str(error)))
            raise

    def note_error(self, error: KafkaError) -> None:
        self.stats.errors += 1
        text = self.redact(error.str())
        self.stats.last_error = f"{error.name()}: {text}"
        if error.code() != KafkaError._ALL_BROKERS_DOWN:  # comes after the error that says why
            self._reason = (time.monotonic(), text)

    @property
    def reason(self) -> str:
        """Why a broker does not answer, as far as the clients were told lately; may be empty."""
        if self._reason is None or time.monotonic() - self._reason[0] > _REASON_S:
            return ""
        return self._reason[1]

    def _throttled(self, event: ThrottleEvent) -> None:
        self.stats.throttled += 1
        self.stats.throttled_ms += int(event.throttle_time * 1000)


def _count(name: str, text: str) -> int:
    if not (text.isdigit() and int(text) > 0):
        raise SettingsError(f"the Kafka option {name} must be a whole number above 0")
    return int(text)


def _checked_servers(servers: str) -> str:
    if "@" in servers:
        raise SettingsError(
            "a kafka:// URL carries no user or password", hint="give sasl.username and sasl.password as Kafka options"
        )
    for server in servers.split(","):
        host, separator, port = server.rpartition(":")
        if not (separator and host and port.isdigit() and 0 < int(port) < 65536):
            raise SettingsError(f"{server!r} is no broker address", hint="use kafka://HOST:PORT[,HOST:PORT...]")
    return servers
