"""From a URL to a log."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tracklog.infra.log.port import Log
from tracklog.schemas.errors import SettingsError

if TYPE_CHECKING:
    from tracklog.infra.log.memory_store import MemoryStore

_KNOWN: Final = "sqlite:PATH, kafka://HOST:PORT[,HOST:PORT...], memory:NAME, cold:ADDRESS"
_lock: Final = threading.Lock()
_stores: Final[dict[str, MemoryStore]] = {}


def wall_clock_ms() -> int:
    """Milliseconds since 1970 UTC."""
    return time.time_ns() // 1_000_000


def open_log(
    url: str,
    *,
    kafka_options: Mapping[str, str] | None = None,
    cold_options: Mapping[str, str] | None = None,
    now_ms: Callable[[], int] = wall_clock_ms,
) -> Log:
    """The log at `url`: `sqlite:PATH`, `kafka://HOST:PORT[,HOST:PORT...]`, `memory:NAME`, or `cold:ADDRESS`, which is
    the events of a cold tier and is read only.

    `kafka_options` are librdkafka settings (SASL, TLS, time-outs), `cold_options` those of the object store. `now_ms`
    stamps the records of the embedded logs; Kafka's brokers stamp their own. `memory:NAME` is one log for all who
    open that name in this process; `memory:` is a new one each time.

    Raises SettingsError (unknown scheme, unusable address or option), and from the file of an embedded log
    LogFormatError and LogUnavailable. A Kafka broker is not waited for: that is `ping`.
    """
    scheme, separator, rest = url.partition(":")
    if separator and scheme == "sqlite":
        return _open_sqlite(rest, now_ms)
    if separator and scheme == "memory":
        return _open_memory(rest, now_ms)
    if rest.startswith("//") and scheme == "kafka":
        return _open_kafka(rest[2:], kafka_options)
    if separator and scheme == "cold":
        return _open_cold(rest, cold_options)
    raise SettingsError(f"unknown log {scheme + separator!r}", hint=f"known are {_KNOWN}")


def _open_sqlite(path: str, now_ms: Callable[[], int]) -> Log:
    from tracklog.infra.log.sqlite import SqliteLog

    if not path:
        raise SettingsError("the log 'sqlite:' names no file", hint="for example sqlite:.tracklog/log.db")
    return SqliteLog(Path(path), now_ms=now_ms)


def _open_memory(name: str, now_ms: Callable[[], int]) -> Log:
    from tracklog.infra.log.memory import MemoryLog
    from tracklog.infra.log.memory_store import MemoryStore

    if not name:
        return MemoryLog(MemoryStore(), now_ms=now_ms)
    with _lock:
        return MemoryLog(_stores.setdefault(name, MemoryStore(name)), now_ms=now_ms)


def _open_kafka(servers: str, options: Mapping[str, str] | None) -> Log:
    from tracklog.infra.log.kafka import KafkaLog

    return KafkaLog(servers, options=options or {})


def _open_cold(url: str, options: Mapping[str, str] | None) -> Log:
    if not url:
        raise SettingsError("the log 'cold:' names no table", hint="for example cold:.tracklog/cold")
    try:
        from tracklog.infra.cold.cold_log import ColdLog
    except ImportError as error:
        raise SettingsError(
            "reading the cold tier needs deltalake", hint="install it: pip install 'tracklog[export]'"
        ) from error
    return ColdLog(url, options or {})
