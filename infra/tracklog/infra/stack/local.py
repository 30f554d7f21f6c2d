"""The local stack: Kafka and Redis as daemons of one folder, started and stopped from any process (DESIGN §11)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from tracklog.infra.stack.file_lock import file_lock
from tracklog.infra.stack.kafka_libs import fetch_libs, libs_path
from tracklog.infra.stack.kafka_server import START_TIMEOUT_S, KafkaServer
from tracklog.infra.stack.maven import FETCH_TIMEOUT_S
from tracklog.infra.stack.valkey_server import ValkeyServer

LOCK_TIMEOUT_S: Final = FETCH_TIMEOUT_S + START_TIMEOUT_S

ONE_BROKER: Final = {"TRACKLOG_TOPICS__REPLICATION_FACTOR": "1", "TRACKLOG_TOPICS__MIN_INSYNC_REPLICAS": "1"}

Progress = Callable[[str], None]


def silent(_: str) -> None:
    """Progress that nobody watches."""


@dataclass(frozen=True, slots=True)
class ServiceStatus:
    """One server of the stack. `healthy`: it answered just now, within two seconds."""

    name: str
    url: str
    pid: int
    healthy: bool
    log_file: str


@dataclass(frozen=True, slots=True)
class StackStatus:
    """What runs, and what to export to use it: `log` and `redis` are None when that server does not run.

    `kafka_libs` is the folder with Kafka's own jars (for its console tools), None until they are fetched.
    """

    log: str | None
    redis: str | None
    kafka_libs: str | None
    services: tuple[ServiceStatus, ...]

    @property
    def healthy(self) -> bool:
        """Every server that runs answers, and at least one runs."""
        return bool(self.services) and all(service.healthy for service in self.services)

    @property
    def exports(self) -> dict[str, str]:
        """Environment variables that point Tracklog at this stack, whose Kafka is one broker."""
        found = {"TRACKLOG_LOG": self.log, "TRACKLOG_REDIS": self.redis}
        one_broker = ONE_BROKER if self.log is not None else {}
        return {name: value for name, value in found.items() if value is not None} | one_broker

    def as_dict(self) -> dict[str, Any]:
        """For `--json`."""
        return {**asdict(self), "healthy": self.healthy, "exports": self.exports}


class LocalStack:
    """The servers whose data live in `state_dir`; their addresses stay the same over restarts.

    Kafka's jars are kept in `state_dir/kafka-libs`, everything else in `state_dir/stack`.
    """

    def __init__(self, state_dir: Path) -> None:
        self._home = state_dir.absolute() / "stack"
        self._libs_cache = state_dir.absolute() / "kafka-libs"

    def up(self, *, kafka: bool, redis: bool, progress: Progress = silent) -> StackStatus:
        """Starts what is asked for and does not run yet; what runs is left alone.

        Two at once take turns. The servers outlive this process. Raises StackError that says what is missing
        (Java, Maven, a Redis server) or why a server did not start.
        """
        with self._lock():
            if redis:
                progress("starting Redis")
                self._redis().start()
            if kafka:
                if not libs_path(self._libs_cache).is_dir():
                    progress("fetching Kafka's jars with Maven: about 55 MB, once")
                fetch_libs(self._libs_cache)
                progress("starting Kafka")
                self._kafka().start()
            return self.status()

    def down(self) -> tuple[str, ...]:
        """Stops what runs, keeps the data; returns the names of what was stopped, often none."""
        with self._lock():
            redis, kafka = self._redis(), self._kafka()
            running = {"kafka": kafka.running, "redis": redis.process.running}
            kafka.stop()
            redis.stop()
            return tuple(name for name, ran in running.items() if ran)

    def status(self) -> StackStatus:
        """What runs now. Never starts or changes anything."""
        services = (*self._kafka_status(), *self._redis_status())
        urls = {service.name: service.url for service in services}
        libs = libs_path(self._libs_cache)
        return StackStatus(
            log=urls.get("kafka"),
            redis=urls.get("redis"),
            kafka_libs=str(libs) if libs.is_dir() else None,
            services=services,
        )

    def _kafka_status(self) -> tuple[ServiceStatus, ...]:
        server = self._kafka()
        return tuple(
            ServiceStatus("kafka", f"kafka://{server.bootstrap}", pid, server.answers(), str(node.process.log_path))
            for node in server.nodes
            if (pid := node.process.pid) is not None
        )

    def _redis_status(self) -> tuple[ServiceStatus, ...]:
        server = self._redis()
        pid = server.process.pid
        if pid is None:
            return ()
        return (ServiceStatus("redis", server.url, pid, server.answers(), str(server.process.log_path)),)

    def _kafka(self) -> KafkaServer:
        return KafkaServer(self._home / "kafka", libs_path(self._libs_cache), lifetime="detached")

    def _redis(self) -> ValkeyServer:
        return ValkeyServer(self._home / "redis", lifetime="detached")

    def _lock(self) -> AbstractContextManager[None]:
        return file_lock(self._home / "lock", timeout_s=LOCK_TIMEOUT_S)
