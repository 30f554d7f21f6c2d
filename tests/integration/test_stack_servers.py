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


@pytest.mark.parametrize("end", [signal.SIGKILL, None], ids=["its process is killed", "its block ends"])
def test_the_embedded_redis_ends_when(end: signal.Signals | None, tmp_path: Path, redis_url: str) -> None:
    home = tmp_path / "redis"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    owner = subprocess.Popen(
        [sys.executable, "-c", EMBEDDED, str(home)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
    )
    assert owner.stdin is not None
    assert owner.stdout is not None
    url = owner.stdout.readline().decode().strip()
    with redis.Redis.from_url(url) as client:
        server = ProcessIdentity.of(client.info("server")["process_id"])
    assert server is not None

    if end is not None:
        owner.send_signal(end)
    owner.communicate(timeout=20)
    assert wait_until(lambda: not server.alive(), 10)
