"""Both ways to start Kafka use the same settings, and what is missing is named with the way out."""

from __future__ import annotations

import re
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import missing_service
from tracklog.infra.stack import java, kafka_libs, kafka_settings, valkey_server
from tracklog.infra.stack.kafka_probe import brokers_of
from tracklog.infra.stack.kafka_server import KafkaServer
from tracklog.infra.stack.ports import free_ports, port_is_free
from tracklog.schemas.errors import StackError

COMPOSE: dict[str, Any] = yaml.safe_load(Path("infra/compose.yaml").read_text())
STACK = {**kafka_settings.COMMON, **kafka_settings.replication(1)}
OWN = kafka_settings.node_settings(1, {1: (9092, 9093)}, Path("/var/lib/kafka/data"))


def in_container(setting: str) -> str:
    """How the container image spells a broker setting."""
    return f"KAFKA_{setting.upper().replace('.', '_')}"


def test_compose_and_the_maven_broker_share_every_setting() -> None:
    environment = COMPOSE["services"]["kafka"]["environment"]
    shared = {in_container(setting): value for setting, value in STACK.items()}
    assert {name: environment.get(name) for name in shared} == shared


def test_compose_sets_nothing_that_the_maven_broker_does_not_know() -> None:
    names = set(COMPOSE["services"]["kafka"]["environment"]) - {"KAFKA_HEAP_OPTS"}
    assert names <= {in_container(setting) for setting in {**STACK, **OWN}}


def test_compose_runs_the_version_that_the_pom_names() -> None:
    version = re.search(r"<kafka\.version>(.+)</kafka\.version>", kafka_libs.POM.read_text())
    assert version is not None
    assert COMPOSE["services"]["kafka"]["image"] == f"apache/kafka:{version.group(1)}"


@pytest.mark.parametrize("service", ["kafka", "redis"])
def test_compose_listens_on_loopback_only_and_knows_when_it_is_healthy(service: str) -> None:
    described = COMPOSE["services"][service]
    assert all(port.startswith("127.0.0.1:") for port in described["ports"])
    assert described["healthcheck"]["test"][0] == "CMD"


def test_compose_redis_never_evicts() -> None:
    command = COMPOSE["services"]["redis"]["command"]
    assert command[command.index("--maxmemory-policy") + 1] == "noeviction"


def test_three_nodes_may_lose_one() -> None:
    settings = kafka_settings.replication(3)
    assert settings["offsets.topic.replication.factor"] == "3"
    assert settings["min.insync.replicas"] == "2"


def test_every_node_knows_every_voter() -> None:
    ports = {1: (1001, 1002), 2: (1003, 1004)}
    assert kafka_settings.node_settings(2, ports, Path("/d"))["controller.quorum.voters"] == (
        "1@127.0.0.1:1002,2@127.0.0.1:1004"
    )


@pytest.fixture
def bare_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(java, "JVM_FOLDERS", ())
    monkeypatch.setattr(valkey_server, "_inside_wheel", lambda: None)


@pytest.mark.usefixtures("bare_machine")
def test_without_java_the_error_says_what_to_install() -> None:
    with pytest.raises(StackError, match="Java 17 or newer is needed: no java was found") as caught:
        java.find_java(17)
    assert "default-jre-headless" in caught.value.hint


@pytest.mark.usefixtures("bare_machine")
def test_without_maven_the_error_says_what_to_install_and_leaves_nothing(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    with pytest.raises(StackError, match="mvn") as caught:
        kafka_libs.fetch_libs(cache)
    assert "maven" in caught.value.hint
    assert not cache.exists()


@pytest.mark.usefixtures("bare_machine")
def test_jars_that_are_there_need_no_maven(tmp_path: Path) -> None:
    kafka_libs.libs_path(tmp_path).mkdir()
    assert kafka_libs.fetch_libs(tmp_path) == kafka_libs.libs_path(tmp_path)


def test_a_failed_download_leaves_no_folder_behind(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    tmp_path.joinpath("mvn").write_text("#!/bin/sh\necho 'Could not transfer artifact' >&2\nexit 1\n")
    tmp_path.joinpath("mvn").chmod(0o755)
    with pytest.raises(StackError, match="Could not transfer artifact"):
        kafka_libs.fetch_libs(tmp_path / "cache")
    assert not kafka_libs.libs_path(tmp_path / "cache").exists()


def test_two_that_need_the_jars_at_once_fetch_them_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    tmp_path.joinpath("mvn").write_text(
        '#!/bin/sh\necho called >> "$0.calls"\nfor last; do :; done\nmkdir -p "${last#-DoutputDirectory=}"\n'
    )
    tmp_path.joinpath("mvn").chmod(0o755)
    cache = tmp_path / "cache"
    with ThreadPoolExecutor(4) as pool:
        found = {future.result() for future in [pool.submit(kafka_libs.fetch_libs, cache) for _ in range(4)]}
    assert found == {kafka_libs.libs_path(cache)}
    assert tmp_path.joinpath("mvn.calls").read_text() == "called\n"


@pytest.mark.usefixtures("bare_machine")
def test_without_redis_the_error_says_what_to_install() -> None:
    with pytest.raises(StackError) as caught:
        valkey_server.find_valkey()
    assert "pip install 'tracklog[local]'" in caught.value.hint


@pytest.mark.parametrize(
    ("release", "major"),
    [('JAVA_VERSION="17.0.15"', 17), ('JAVA_VERSION="25"', 25), ('JAVA_VERSION="1.8.0_402"', 8), ("", None)],
)
def test_the_version_of_a_java_is_read_from_its_release_file(tmp_path: Path, release: str, major: int | None) -> None:
    tmp_path.joinpath("release").write_text(f"IMPLEMENTOR=x\n{release}\n")
    assert java.java_major(tmp_path / "bin" / "java") == major


def test_a_java_that_is_too_old_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    executable = tmp_path / "old" / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.touch()
    tmp_path.joinpath("old", "release").write_text('JAVA_VERSION="11.0.2"')
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(java, "JVM_FOLDERS", (tmp_path,))
    with pytest.raises(StackError, match="is Java 11"):
        java.find_java(17)


def test_free_ports_are_distinct_free_and_outside_of_the_ephemeral_range() -> None:
    ports = free_ports(6)
    assert len(set(ports)) == 6
    assert all(port_is_free(port) and port < 32_768 for port in ports)


def test_a_port_that_somebody_listens_on_is_not_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert not port_is_free(taken.getsockname()[1])


def test_the_probe_does_not_take_anything_for_a_broker() -> None:
    [port] = free_ports(1)
    with pytest.raises(OSError, match="refused"):
        brokers_of("127.0.0.1", port, 1.0)


def test_a_folder_of_another_cluster_size_is_refused(tmp_path: Path) -> None:
    tmp_path.joinpath("cluster.json").write_text('{"cluster_id": "x", "ports": {"1": [1, 2]}}')
    with pytest.raises(StackError, match="1 nodes, not 3"):
        KafkaServer(tmp_path, tmp_path, nodes=3)


@pytest.mark.parametrize(("ci", "outcome"), [("true", pytest.fail.Exception), ("", pytest.skip.Exception)])
def test_a_missing_service_fails_in_ci_and_skips_elsewhere(
    monkeypatch: pytest.MonkeyPatch, ci: str, outcome: type[BaseException]
) -> None:
    monkeypatch.setenv("CI", ci)
    with pytest.raises(outcome, match="no such thing here"):
        missing_service("no such thing here")
