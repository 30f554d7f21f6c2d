"""The local stack as its commands use it: from several processes, twice, at once, after a crash."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.conftest import docker_reason, kafka_container
from tracklog.infra.stack.kafka_libs import libs_path
from tracklog.infra.stack.kafka_probe import brokers_of
from tracklog.infra.stack.local import ONE_BROKER, LocalStack

COMMAND = """
import json, sys
from pathlib import Path
from tracklog.infra.stack.local import LocalStack
status = LocalStack(Path(sys.argv[1])).up(kafka="kafka" in sys.argv, redis="redis" in sys.argv)
print(json.dumps(status.as_dict()))
"""


def up_elsewhere(state_dir: Path, *services: str) -> subprocess.Popen[str]:
    """`stack up` in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", COMMAND, str(state_dir), *services]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


def answer(process: subprocess.Popen[str]) -> dict[str, Any]:
    output, _ = process.communicate(timeout=100)
    assert process.returncode == 0
    return dict(json.loads(output))


@pytest.fixture
def state_dir(tmp_path: Path, redis_url: str) -> Iterator[Path]:
    assert redis_url  # there is a server to install from
    yield tmp_path
    LocalStack(tmp_path).down()


def test_nothing_runs_before_and_stopping_nothing_is_fine(state_dir: Path) -> None:
    stack = LocalStack(state_dir)
    assert stack.status().services == ()
    assert stack.status().exports == {}
    assert stack.down() == ()


def test_kafka_and_redis_outlive_the_process_that_started_them(state_dir: Path, kafka_libs: Path) -> None:
    link = libs_path(state_dir / "kafka-libs")
    link.parent.mkdir()
    link.symlink_to(kafka_libs)

    first = answer(up_elsewhere(state_dir, "kafka", "redis"))

    stack = LocalStack(state_dir)
    status = stack.status()
    assert status.as_dict() == json.loads(json.dumps(first), object_hook=_services_as_tuple)
    assert status.healthy
    assert status.kafka_libs == str(link)
    assert status.exports == {"TRACKLOG_LOG": status.log, "TRACKLOG_REDIS": status.redis, **ONE_BROKER}
    assert status.log is not None
    port = int(status.log.rpartition(":")[2])
    assert brokers_of("127.0.0.1", port, 2.0) == {1}

    assert stack.up(kafka=True, redis=True) == status, "a second `up` starts nothing"
    assert stack.down() == ("kafka", "redis")
    assert stack.status().services == ()

    with socket.create_server(("127.0.0.1", port)):
        moved = stack.up(kafka=True, redis=True)
    assert moved.redis == status.redis
    assert moved.log != status.log, "a stranger took the port while the broker was down"


def _services_as_tuple(found: dict[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if key == "services" else value for key, value in found.items()}


def test_two_at_once_start_one_server(state_dir: Path) -> None:
    both = [up_elsewhere(state_dir, "redis") for _ in range(2)]
    one, other = [answer(process) for process in both]
    assert one["services"] == other["services"]
    assert len(one["services"]) == 1


def test_a_frozen_server_runs_but_is_not_healthy(state_dir: Path) -> None:
    stack = LocalStack(state_dir)
    [service] = stack.up(kafka=False, redis=True).services
    os.kill(service.pid, signal.SIGSTOP)
    [frozen] = stack.status().services
    assert (frozen.pid, frozen.healthy) == (service.pid, False)
    assert stack.down() == ("redis",)


def test_data_survive_down_and_a_killed_server_starts_again(state_dir: Path) -> None:
    stack = LocalStack(state_dir)
    status = stack.up(kafka=False, redis=True)
    assert status.redis is not None
    with redis.Redis.from_url(status.redis) as client:
        client.set("kept", "yes")
    stack.down()
    [service] = stack.up(kafka=False, redis=True).services
    os.kill(service.pid, signal.SIGKILL)

    with redis.Redis.from_url(str(stack.up(kafka=False, redis=True).redis)) as client:
        assert client.get("kept") == b"yes"


def test_kafka_in_a_container_where_docker_answers() -> None:
    reason = docker_reason()
    if reason is not None:
        pytest.skip(reason)  # in CI too: Docker is one way to the same broker, Maven the other
    with kafka_container() as bootstrap:
        assert brokers_of("127.0.0.1", int(bootstrap.rpartition(":")[2]), 5.0) == {1}
