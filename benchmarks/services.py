"""Real services for one benchmark run, on loopback, stopped at the end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from tracklog.infra.stack.kafka_libs import fetch_libs
from tracklog.infra.stack.kafka_server import KafkaServer
from tracklog.infra.stack.valkey_server import ValkeyServer

LIBS = Path(__file__).resolve().parent.parent / ".tracklog" / "kafka-libs"
CLUSTER_START_S = 300.0
"""Three of them start together, perhaps beside other work."""


@contextmanager
def scratch() -> Iterator[Path]:
    with TemporaryDirectory(prefix="tracklog-bench-") as folder:
        yield Path(folder)


@contextmanager
def kafka() -> Iterator[str]:
    """host:port of a broker of one node."""
    with scratch() as folder:
        server = KafkaServer(folder, fetch_libs(LIBS))
        try:
            yield server.start()
        finally:
            server.stop()


@contextmanager
def kafka_cluster(nodes: int = 3) -> Iterator[KafkaServer]:
    """A cluster that keeps every record on all of its nodes, to kill some of them."""
    with scratch() as folder:
        server = KafkaServer(folder, fetch_libs(LIBS), nodes=nodes)
        try:
            server.start(CLUSTER_START_S)
            yield server
        finally:
            server.kill()


@contextmanager
def valkey() -> Iterator[str]:
    """URL of an empty server."""
    with scratch() as folder:
        server = ValkeyServer(folder)
        try:
            yield server.start()
        finally:
            server.stop()
