"""Broker settings of the local stack, the same for the Maven broker and infra/compose.yaml."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tracklog.infra.stack.ports import LOOPBACK

INTERNAL_PARTITIONS: Final = 4

COMMON: Final[Mapping[str, str]] = {
    # Topics are created on purpose and verified (DESIGN §4); a typing error must not make one.
    "auto.create.topics.enable": "false",
    "unclean.leader.election.enable": "false",
    # Takeover after a SIGKILL in about 2 s, on both group protocols. The broker's own default for KIP-848
    # groups is 45 s, by minimum too (DESIGN §6).
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "2000",
    "group.consumer.min.heartbeat.interval.ms": "300",
    "group.consumer.heartbeat.interval.ms": "300",
    "group.min.session.timeout.ms": "1000",
    "group.initial.rebalance.delay.ms": "0",
    # 50 partitions by default, created at the first use of a group or a transaction.
    "offsets.topic.num.partitions": str(INTERNAL_PARTITIONS),
    "transaction.state.log.num.partitions": str(INTERNAL_PARTITIONS),
    "share.coordinator.state.topic.num.partitions": str(INTERNAL_PARTITIONS),
    # 128 MiB of heap by default, a quarter of what the local broker has.
    "log.cleaner.dedupe.buffer.size": str(8 * 1024 * 1024),
    "num.network.threads": "2",
    "num.io.threads": "4",
    # After a SIGKILL a broker may register again only when its old session has run out: 9 s by default.
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
}


def replication(nodes: int) -> dict[str, str]:
    """Replication of the broker's own topics: on every node; of three nodes one may be lost."""
    factor, in_sync = str(nodes), str(max(1, nodes - 1))
    return {
        "offsets.topic.replication.factor": factor,
        "transaction.state.log.replication.factor": factor,
        "transaction.state.log.min.isr": in_sync,
        "share.coordinator.state.topic.replication.factor": factor,
        "share.coordinator.state.topic.min.isr": in_sync,
        "default.replication.factor": factor,
        "min.insync.replicas": in_sync,
    }


def node_settings(node_id: int, ports: Mapping[int, tuple[int, int]], log_dir: Path) -> dict[str, str]:
    """What makes a node itself. `ports` maps each node's id to its (client, controller) port."""
    client, controller = ports[node_id]
    voters = ",".join(f"{other}@{LOOPBACK}:{pair[1]}" for other, pair in sorted(ports.items()))
    return {
        "process.roles": "broker,controller",
        "node.id": str(node_id),
        "controller.quorum.voters": voters,
        "listeners": f"PLAINTEXT://{LOOPBACK}:{client},CONTROLLER://{LOOPBACK}:{controller}",
        "advertised.listeners": f"PLAINTEXT://{LOOPBACK}:{client}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "log.dirs": str(log_dir),
    }


def as_properties(settings: Mapping[str, str]) -> str:
    """The text of a Java properties file; backslashes in values (never ours) would need escaping."""
    return "".join(f"{key}={value}\n" for key, value in sorted(settings.items()))
