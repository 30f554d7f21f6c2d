"""Brokers whose own metrics Prometheus can scrape, as Strimzi names them: through the JMX exporter, from Maven."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import yaml

from tracklog.infra.stack.file_lock import file_lock
from tracklog.infra.stack.kafka_server import QUICK_START, KafkaNode, KafkaServer
from tracklog.infra.stack.maven import FETCH_TIMEOUT_S, run_maven
from tracklog.infra.stack.ports import LOOPBACK, free_ports
from tracklog.infra.stack.process import Lifetime

VERSION: Final = "1.0.1"
ARTIFACT: Final = f"io.prometheus.jmx:jmx_prometheus_javaagent:{VERSION}:jar"
COPY: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"
PARTITIONS: Final = "kafka.cluster:type=Partition,*"
RULES: Final = {
    "lowercaseOutputName": True,
    "includeObjectNames": [PARTITIONS],
    "rules": [
        {
            "pattern": "kafka.(\\w+)<type=(.+), name=(.+), topic=(.+), partition=(.+)><>Value",
            "name": "kafka_$1_$2_$3",
            "type": "GAUGE",
            "labels": {"topic": "$4", "partition": "$5"},
        }
    ],
}


def fetch_exporter(cache: Path) -> Path:
    """The jar; fetched when it is not there yet (3 MB). Raises StackError."""
    jar = cache / f"jmx_prometheus_javaagent-{VERSION}.jar"
    with file_lock(cache / ".lock", timeout_s=FETCH_TIMEOUT_S):
        if not jar.exists():
            partial = cache / ".partial"
            shutil.rmtree(partial, ignore_errors=True)
            run_maven(COPY, f"-Dartifact={ARTIFACT}", f"-DoutputDirectory={partial.absolute()}")
            (partial / jar.name).rename(jar)
    return jar


class ScrapedNode(KafkaNode):
    def __init__(self, node_id: int, home: Path, libs: Path, exporter: Path) -> None:
        super().__init__(node_id, home, libs)
        self._exporter = exporter
        (self._metrics_port,) = free_ports(1)

    @property
    def metrics(self) -> str:
        """host:port where it is scraped."""
        return f"{LOOPBACK}:{self._metrics_port}"

    def spawn(self, lifetime: Lifetime, jvm_flags: Sequence[str]) -> None:
        rules = self.home / "metrics.yaml"
        rules.write_text(yaml.safe_dump(RULES), encoding="utf-8")
        agent = f"-javaagent:{self._exporter.absolute()}={self.metrics}:{rules}"
        super().spawn(lifetime, [*jvm_flags, agent])


class ScrapedKafka(KafkaServer):
    """A cluster of such nodes."""

    def __init__(self, home: Path, libs: Path, exporter: Path, *, nodes: int) -> None:
        self._exporter = exporter
        super().__init__(home, libs, nodes=nodes, jvm_flags=QUICK_START)

    def _name_nodes(self) -> None:
        self.scraped = tuple(ScrapedNode(n, self.home / f"node-{n}", self._libs, self._exporter) for n in self._ports)
        self.nodes = self.scraped
