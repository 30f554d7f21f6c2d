"""A real Apache Kafka on this machine: one node, or a cluster of several, in KRaft mode."""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tracklog.infra.clock import SystemEntropy
from tracklog.infra.stack import kafka_settings
from tracklog.infra.stack.java import find_java
from tracklog.infra.stack.kafka_probe import brokers_of
from tracklog.infra.stack.ports import LOOPBACK, free_ports, port_is_free
from tracklog.infra.stack.process import STOP_GRACE_S, Lifetime, ServerProcess, wait_until, writing
from tracklog.schemas.errors import StackError

JAVA_MAJOR_MIN: Final = 17
HEAP: Final = ("-Xmx512m", "-XX:+UseSerialGC")
START_TIMEOUT_S: Final = 90.0
FORMAT_TIMEOUT_S: Final = 60.0
PROBE_TIMEOUT_S: Final = 2.0
START_TRIES: Final = 3
QUICK_START: Final = ("-XX:TieredStopAtLevel=1",)
"""Java's quick compiler only: a third less processor time until a broker answers, slower once it is warm."""
LOG4J: Final = Path(__file__).with_name("log4j2.properties")


class KafkaNode:
    """One broker and controller. Tests freeze, kill and restart it; its ports and its data stay the same."""

    def __init__(self, node_id: int, home: Path, libs: Path) -> None:
        self.node_id = node_id
        self.home = home
        self.process = ServerProcess(f"kafka-{node_id}", home)
        self.data = home / "data"
        self._libs = libs
        self._properties = home / "server.properties"
        self._formatted = home / "formatted"

    def configure(self, settings: Mapping[str, str]) -> None:
        with writing(self._properties):
            self.home.mkdir(parents=True, exist_ok=True)
            self._properties.write_text(kafka_settings.as_properties(settings))

    def begin_format(self, cluster_id: str) -> subprocess.Popen[str] | None:
        """Starts StorageTool; None when the storage was formatted before."""
        if self._formatted.exists():
            return None
        command = self._command("kafka.tools.StorageTool", *QUICK_START)
        options = ("format", "--ignore-formatted", "-t", cluster_id, "-c", str(self._properties))
        return subprocess.Popen([*command, *options], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def end_format(self, tool: subprocess.Popen[str] | None) -> None:
        if tool is None:
            return
        try:
            output, _ = tool.communicate(timeout=FORMAT_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            tool.kill()
            raise StackError(f"formatting the storage of kafka-{self.node_id} took too long") from None
        if tool.returncode != 0:
            raise StackError(f"the storage of kafka-{self.node_id} could not be formatted:\n{output.strip()}")
        self._formatted.touch()

    def spawn(self, lifetime: Lifetime, jvm_flags: Sequence[str]) -> None:
        command = self._command("kafka.Kafka", *HEAP, *jvm_flags)
        self.process.spawn([*command, str(self._properties)], lifetime=lifetime)

    def _command(self, main_class: str, *flags: str) -> list[str]:
        log4j = f"-Dlog4j2.configurationFile={LOG4J.as_uri()}"
        java = find_java(JAVA_MAJOR_MIN)
        return [str(java), *flags, log4j, "-cp", f"{self._libs}/*", main_class]


class KafkaServer:
    """One or more nodes in `home`, which keeps their data, settings, logs and pid files.

    Opened on the home of a running cluster, it takes that cluster over: `stop` then works across processes.
    """

    def __init__(
        self,
        home: Path,
        libs: Path,
        *,
        nodes: int = 1,
        overrides: Mapping[str, str] | None = None,
        lifetime: Lifetime = "parent",
        jvm_flags: Sequence[str] = (),
    ) -> None:
        self.home = home.absolute()
        self._libs = libs.absolute()
        self._count = nodes
        self._overrides = dict(overrides or {})
        self._lifetime: Lifetime = lifetime
        self._jvm_flags = tuple(jvm_flags)
        self._cluster_path = self.home / "cluster.json"
        self._ports: dict[int, tuple[int, int]] = {}
        self.cluster_id = ""
        self.nodes: tuple[KafkaNode, ...] = ()
        self._load()

    def _load(self) -> None:
        if self._cluster_path.exists():
            kept = json.loads(self._cluster_path.read_text())
            self.cluster_id = kept["cluster_id"]
            self._ports = {int(node): (pair[0], pair[1]) for node, pair in kept["ports"].items()}
            if len(self._ports) != self._count:
                raise StackError(
                    f"{self.home} holds a cluster of {len(self._ports)} nodes, not {self._count}",
                    hint="use another folder, or remove this one",
                )
            self._name_nodes()

    def _name_nodes(self) -> None:
        self.nodes = tuple(KafkaNode(n, self.home / f"node-{n}", self._libs) for n in self._ports)

    @property
    def bootstrap(self) -> str:
        """`host:port` of every node, comma-separated. Only after the first `start`."""
        return ",".join(f"{LOOPBACK}:{client}" for client, _ in self._ports.values())

    @property
    def running(self) -> bool:
        return bool(self.nodes) and all(node.process.running for node in self.nodes)

    @property
    def pids(self) -> tuple[int, ...]:
        return tuple(pid for node in self.nodes if (pid := node.process.pid) is not None)

    def start(self, timeout_s: float = START_TIMEOUT_S) -> str:
        """Starts what does not run yet and waits until every node sees every other. Returns the bootstrap.

        Raises StackError with the end of a broker's log when it dies or does not answer within the bound.
        """
        for attempt in range(1, START_TRIES + 1):
            self._plan()
            idle = [node for node in self.nodes if not node.process.running]
            try:
                self._start_nodes(idle, timeout_s)
            except StackError:
                # Worth another try: a port was taken, or one that ran was ending just when we looked.
                ended = any(not node.process.running for node in self.nodes if node not in idle)
                if attempt == START_TRIES or not (ended or self._port_was_taken()):
                    raise
            else:
                break
        return self.bootstrap

    def _plan(self) -> None:
        """Keeps the cluster's id and ports, as far as nobody took the ports while all of it was down."""
        kept = [port for pair in self._ports.values() for port in pair]
        if kept and (self.pids or all(port_is_free(port) for port in kept)):
            return
        ports = free_ports(2 * self._count)
        self._ports = {n + 1: (ports[2 * n], ports[2 * n + 1]) for n in range(self._count)}
        self.cluster_id = self.cluster_id or _new_cluster_id()
        with writing(self._cluster_path):
            self.home.mkdir(parents=True, exist_ok=True)
            partial = self._cluster_path.with_suffix(".partial")
            partial.write_text(json.dumps({"cluster_id": self.cluster_id, "ports": self._ports}))
            partial.replace(self._cluster_path)
        self._name_nodes()

    def _start_nodes(self, idle: list[KafkaNode], timeout_s: float) -> None:
        """Starts these; on failure ends them again, and nothing else."""
        try:
            for node in idle:
                node.configure(self._settings(node))
            tools = [(node, node.begin_format(self.cluster_id)) for node in idle]
            for node, tool in tools:
                node.end_format(tool)
            for node in idle:
                node.spawn(self._lifetime, self._jvm_flags)
            self.wait_ready(timeout_s)
        except BaseException:
            for node in idle:
                node.process.kill()
            raise

    def _port_was_taken(self) -> bool:
        return any("Address already in use" in node.process.log_tail(200) for node in self.nodes)

    def _settings(self, node: KafkaNode) -> dict[str, str]:
        own = kafka_settings.node_settings(node.node_id, self._ports, node.data)
        return {**kafka_settings.COMMON, **kafka_settings.replication(self._count), **own, **self._overrides}

    def restart(self, node: KafkaNode, timeout_s: float = START_TIMEOUT_S) -> None:
        """Starts one node again after it was killed, and waits until the cluster is whole."""
        client, _ = self._ports[node.node_id]
        if not node.process.running and not port_is_free(client):
            raise StackError(f"port {client} of kafka-{node.node_id} was taken while it was down")
        node.spawn(self._lifetime, self._jvm_flags)
        self.wait_ready(timeout_s)

    def wait_ready(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Until every node answers a metadata request with all nodes in service. Raises StackError."""
        done = wait_until(lambda: self._dead() is not None or self.answers(), timeout_s)
        dead = self._dead()
        if dead is not None:
            raise StackError(f"Kafka node {dead.node_id} ended while starting; its log says:\n{_why(dead)}")
        if not done:
            tail = self.nodes[0].process.log_tail()
            raise StackError(f"Kafka at {self.bootstrap} did not answer within {timeout_s:.0f} s:\n{tail}")

    def answers(self) -> bool:
        """Whether every node says, within two seconds each, that all nodes are in service."""
        return bool(self._ports) and all(self._seen_by(node) == frozenset(self._ports) for node in self._ports)

    def _dead(self) -> KafkaNode | None:
        return next((node for node in self.nodes if not node.process.running), None)

    def _seen_by(self, node_id: int) -> frozenset[int]:
        try:
            return brokers_of(LOOPBACK, self._ports[node_id][0], PROBE_TIMEOUT_S)
        except OSError:
            return frozenset()

    def stop(self, grace_s: float = STOP_GRACE_S) -> None:
        """Orderly, with a bound. The last node of several has no quorum left to leave, and is killed."""
        for place, node in enumerate(self.nodes, start=1):
            alone = place == self._count and self._count > 1
            node.process.stop(0.0 if alone else grace_s)

    def kill(self) -> None:
        """At once, as a power cut would; for clusters whose data nobody wants."""
        for node in self.nodes:
            node.process.kill()


def _new_cluster_id() -> str:
    raw = bytearray(SystemEntropy().nonce())
    raw[0] &= 0x7F  # never a leading '-', which StorageTool would take for an option
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def _why(node: KafkaNode) -> str:
    """The lines of the log that say why: from the last ERROR or FATAL on, else simply the last ones."""
    lines = node.process.log_tail(400).splitlines()
    marks = [n for n, line in enumerate(lines) if " ERROR " in line or " FATAL " in line or "Exception" in line]
    return "\n".join(lines[marks[-1] :][:8] if marks else lines[-8:])
