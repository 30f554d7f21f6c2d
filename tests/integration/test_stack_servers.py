"""The servers that the stack starts, and what a test may do to them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import redis
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tracklog.infra.stack.embedded import embedded_redis
from tracklog.infra.stack.kafka_server import KafkaServer
from tracklog.infra.stack.process import ProcessIdentity, wait_until
from tracklog.infra.stack.valkey_server import ValkeyServer
from tracklog.schemas.errors import StackError


def create(bootstrap: str, topic: NewTopic) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.create_topics([topic])[topic.topic].result(timeout=30)


def produce(bootstrap: str, topic: str, value: bytes) -> None:
    failures: list[object] = []
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "log_level": 0})
    producer.produce(topic, value, on_delivery=lambda error, _: failures.append(error))
    assert producer.flush(30) == 0
    assert failures == [None]


def end_of(bootstrap: str, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "log_level": 0})
    try:
        _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10, cached=False)
    finally:
        consumer.close()
    return int(end)


def test_the_shared_broker_takes_records(kafka_bootstrap: str, fresh_prefix: str) -> None:
    create(kafka_bootstrap, NewTopic(fresh_prefix, 1, 1))
    produce(kafka_bootstrap, fresh_prefix, b"first")
    assert end_of(kafka_bootstrap, fresh_prefix) == 1


def test_a_broker_can_be_frozen_killed_and_restarted_with_its_records(kafka_server: KafkaServer) -> None:
    [node] = kafka_server.nodes
    bootstrap = kafka_server.bootstrap
    create(bootstrap, NewTopic("kept", 1, 1, config={"flush.messages": "1"}))
    produce(bootstrap, "kept", b"before")

    node.process.freeze()
    with pytest.raises(StackError, match="did not answer within"):
        kafka_server.wait_ready(timeout_s=0.5)
    node.process.thaw()
    kafka_server.wait_ready()

    node.process.kill()
    assert not kafka_server.running
    kafka_server.restart(node)
    produce(bootstrap, "kept", b"after")
    assert end_of(bootstrap, "kept") == 2


@pytest.mark.faults
@pytest.mark.timeout(300)
def test_three_nodes_go_on_when_one_is_killed(kafka_cluster_factory: Callable[..., KafkaServer]) -> None:
    cluster = kafka_cluster_factory(nodes=3)
    create(cluster.bootstrap, NewTopic("wide", 1, 3, config={"min.insync.replicas": "2"}))
    produce(cluster.bootstrap, "wide", b"all three")

    victim = cluster.nodes[0]
    victim.process.kill()
    produce(cluster.bootstrap, "wide", b"two of three")

    cluster.restart(victim)
    assert end_of(cluster.bootstrap, "wide") == 2


def test_a_broker_that_cannot_start_says_why(kafka_libs: Path, tmp_path: Path) -> None:
    server = KafkaServer(tmp_path / "kafka", kafka_libs, overrides={"num.io.threads": "many"})
    with pytest.raises(StackError, match=r"num\.io\.threads"):
        server.start()
    assert not server.running


def test_the_shared_redis_is_empty_for_each_test(redis_db: str) -> None:
    with redis.Redis.from_url(redis_db) as client:
        assert client.dbsize() == 0
        client.set("left", "behind")


@pytest.mark.parametrize("tcp", [False, True], ids=["unix socket", "tcp"])
def test_a_valkey_keeps_what_it_said_was_safe_and_forgets_all_when_wiped(
    valkey_factory: Callable[..., ValkeyServer], tcp: bool
) -> None:
    server = valkey_factory(tcp=tcp, persistence="always")
    with redis.Redis.from_url(server.url) as client:
        client.set("kept", "yes")
    server.kill()
    url = server.url
    assert server.start() == url
    with redis.Redis.from_url(url) as client:
        assert client.get("kept") == b"yes"
        assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}

    server.kill()
    server.wipe()
    with redis.Redis.from_url(server.start()) as client:
        assert client.get("kept") is None


def test_a_running_valkey_is_not_wiped(valkey_factory: Callable[..., ValkeyServer]) -> None:
    with pytest.raises(StackError, match="cannot be wiped"):
        valkey_factory().wipe()


def test_a_deep_folder_gets_a_tcp_port_instead_of_a_socket(tmp_path: Path, redis_url: str) -> None:
    server = ValkeyServer(tmp_path / ("deep" * 25), persistence="none")
    try:
        assert server.start().startswith("redis://127.0.0.1:")
    finally:
        server.kill()


EMBEDDED = """
import sys
from pathlib import Path
from tracklog.infra.stack.embedded import embedded_redis
with embedded_redis(Path(sys.argv[1])) as url:
    print(url, flush=True)
    sys.stdin.read()
"""


class Owner:
    """A process that uses the embedded server until it is told to leave, or is killed."""

    def __init__(self, home: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", EMBEDDED, str(home)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().strip()

    def leave(self, *, killed: bool) -> None:
        if killed:
            self.process.kill()
        self.process.communicate(timeout=20)


def server_at(url: str) -> ProcessIdentity:
    with redis.Redis.from_url(url) as client:
        found = ProcessIdentity.of(client.info("server")["process_id"])
    assert found is not None
    return found


@pytest.mark.parametrize("killed", [True, False], ids=["is killed", "leaves"])
def test_the_embedded_redis_ends_with_its_last_user_who(killed: bool, tmp_path: Path, redis_url: str) -> None:
    first = Owner(tmp_path / "redis")
    server = server_at(first.url)
    second = Owner(tmp_path / "redis")
    assert server_at(second.url) == server, "both use one server"

    first.leave(killed=killed)
    with redis.Redis.from_url(second.url) as client:
        client.set("kept", "yes")
    assert server.alive()

    second.leave(killed=killed)
    assert wait_until(lambda: not server.alive(), 10)


def test_the_embedded_redis_keeps_its_data_for_the_next_user(tmp_path: Path, redis_url: str) -> None:
    for round_number in range(3):
        with embedded_redis(tmp_path / "redis") as url, redis.Redis.from_url(url) as client:
            assert client.incr("rounds") == round_number + 1


def test_the_embedded_redis_is_started_again_when_it_was_killed_under_its_users(tmp_path: Path, redis_url: str) -> None:
    with embedded_redis(tmp_path / "redis") as url:
        assert server_at(url).signal(signal.SIGKILL)
        with embedded_redis(tmp_path / "redis") as again, redis.Redis.from_url(again) as client:
            assert client.ping()


def test_a_server_ends_with_the_process_that_started_it(tmp_path: Path, redis_url: str) -> None:
    code = (
        "import sys, signal; from pathlib import Path\n"
        "from tracklog.infra.stack.valkey_server import ValkeyServer\n"
        "print(ValkeyServer(Path(sys.argv[1])).start(), flush=True); signal.pause()"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", code, str(tmp_path)]
    owner = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    assert owner.stdout is not None
    server = server_at(owner.stdout.readline().strip())

    owner.kill()
    owner.communicate(timeout=20)
    assert wait_until(lambda: not server.alive(), 10)
