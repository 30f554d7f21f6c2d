"""Redis in other shapes than one server: a primary with a replica behind sentinels, and a cluster of three."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import redis

from tests.conftest import ValkeyFactory
from tracklog.infra.stack.ports import LOOPBACK, free_ports
from tracklog.infra.stack.process import ServerProcess, wait_until
from tracklog.infra.stack.valkey_server import ValkeyServer, find_valkey

SERVICE = "store"
READY_S = 20.0
DOWN_MS = 500
SLOTS = 16384


class BehindSentinel(NamedTuple):
    """`url` is the clients'; the first of the servers is the primary at the start. `sentinels` in the order of the
    address."""

    url: str
    primary: ValkeyServer
    replica: ValkeyServer
    sentinels: Sequence[ServerProcess]


def admin_of(server: ValkeyServer) -> Any:
    return redis.Redis.from_url(server.url, socket_timeout=5)


def port_of(server: ValkeyServer) -> int:
    return int(server.url.removeprefix(f"redis://{LOOPBACK}:").removesuffix("/0"))


@contextmanager
def behind_sentinel(make: ValkeyFactory, folder: Path, *, sentinels: int = 1) -> Iterator[BehindSentinel]:
    """Sentinels that fail over when most of them agree, within a second or two; one does so alone."""
    primary, replica = (make(tcp=True, persistence="none") for _ in range(2))
    with admin_of(replica) as admin:
        admin.replicaof(LOOPBACK, port_of(primary))
    with admin_of(primary) as admin:
        assert wait_until(lambda: admin.info("replication")["connected_slaves"] == 1, READY_S)
    ports = free_ports(sentinels)
    started = [_sentinel(folder / f"sentinel-{port}", port, port_of(primary), sentinels // 2 + 1) for port in ports]
    try:
        for port, process in zip(ports, started, strict=True):
            with redis.Redis(LOOPBACK, port, socket_timeout=5) as asked:
                assert wait_until(lambda asked=asked: _knows_all(asked, sentinels), READY_S), process.log_tail()  # type: ignore[misc]
        hosts = ",".join(f"{LOOPBACK}:{port}" for port in ports)
        yield BehindSentinel(f"redis+sentinel://{hosts}/{SERVICE}/0", primary, replica, started)
    finally:
        for process in started:
            process.kill()


def _sentinel(folder: Path, port: int, primary: int, quorum: int) -> ServerProcess:
    folder.mkdir()
    config = folder / "sentinel.conf"
    config.write_text(
        f"port {port}\nbind {LOOPBACK}\ndir {folder}\nsentinel monitor {SERVICE} {LOOPBACK} {primary} {quorum}\n"
        f"sentinel down-after-milliseconds {SERVICE} {DOWN_MS}\nsentinel failover-timeout {SERVICE} 2000\n"
    )
    process = ServerProcess("sentinel", folder)
    process.spawn([str(find_valkey()), str(config), "--sentinel"], lifetime="parent")
    return process


def _knows_all(sentinel: Any, sentinels: int) -> bool:
    try:
        known = sentinel.sentinel_master(SERVICE)
    except redis.ConnectionError:
        return False
    return (int(known["num-slaves"]), int(known["num-other-sentinels"])) == (1, sentinels - 1)


class Cluster(NamedTuple):
    url: str
    nodes: Sequence[ValkeyServer]

    def move(self, key: str) -> int:
        """Moves the slot of a key to another node, its keys one after another, as a rebalancing would; how many."""
        admins = [admin_of(node) for node in self.nodes]
        slot = int(admins[0].execute_command("CLUSTER", "KEYSLOT", key))
        ids = [admin.execute_command("CLUSTER", "MYID").decode() for admin in admins]
        counts = [int(admin.execute_command("CLUSTER", "COUNTKEYSINSLOT", slot)) for admin in admins]
        source = counts.index(max(counts))
        target = (source + 1) % len(admins)
        admins[target].execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", ids[source])
        admins[source].execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", ids[target])
        moved = 0
        while keys := admins[source].execute_command("CLUSTER", "GETKEYSINSLOT", slot, 20):
            port = port_of(self.nodes[target])
            admins[source].execute_command("MIGRATE", LOOPBACK, port, "", 0, 5000, "KEYS", *keys)
            moved += len(keys)
        for admin in admins[target:] + admins[:target]:  # the new owner first
            admin.execute_command("CLUSTER", "SETSLOT", slot, "NODE", ids[target])
        for admin in admins:
            admin.close()
        return moved


@contextmanager
def cluster_of_three(make: ValkeyFactory) -> Iterator[Cluster]:
    """Three primaries that have a third of the slots each."""
    nodes = []
    for bus in free_ports(3):
        options = ("--cluster-enabled", "yes", "--cluster-port", str(bus), "--cluster-node-timeout", "3000")
        nodes.append(make(tcp=True, persistence="none", options=options))
    admins = [admin_of(node) for node in nodes]
    for n, admin in enumerate(admins):
        admin.execute_command("CLUSTER", "ADDSLOTSRANGE", n * SLOTS // 3, (n + 1) * SLOTS // 3 - 1)
        bus = int(admins[n].config_get("cluster-port")["cluster-port"])
        admins[0].execute_command("CLUSTER", "MEET", LOOPBACK, port_of(nodes[n]), bus)
    for admin in admins:
        assert wait_until(lambda admin=admin: _whole(admin), READY_S)  # type: ignore[misc]
        admin.close()
    yield Cluster(f"redis+cluster://{LOOPBACK}:{port_of(nodes[0])}", nodes)


def _whole(admin: Any) -> bool:
    info = admin.cluster("info")
    return bool(info["cluster_state"] == "ok" and int(info["cluster_known_nodes"]) == 3)
