"""Services for the tests: real ones, started only when a test asks, ended with the test run whatever happens.

| fixture | scope | gives |
| --- | --- | --- |
| `kafka_bootstrap` | session | `host:port` of a broker shared by all tests; name topics by `fresh_prefix` |
| `kafka_server` | test | a broker of its own: freeze, kill, restart it |
| `kafka_cluster_factory` | module | `make(nodes=3, overrides={...})` -> a started `KafkaServer` |
| `redis_url` | session | URL of a server shared by all tests |
| `redis_db` | test | the same URL, the database emptied before and after |
| `valkey_factory` | test | `make(**options)` -> a started `ValkeyServer` to freeze, kill, wipe, restart |
| `registry_url` | session | the Confluent API of a real schema registry (Apicurio) shared by all tests |
| `fresh_prefix` | test | a prefix for topics, groups and keys that no other test or run uses |
| `log_urls` | test | `log_urls("sqlite" / "kafka" / "memory")` -> the URL of such a log |

A missing service skips with its reason on a laptop and fails where CI=true. `TRACKLOG_TEST_KAFKA` (host:port)
and `TRACKLOG_TEST_REDIS` (a URL whose database is empty) name services that run already; else Kafka comes
from Docker where an engine answers, else from Maven's jars, which are kept in `.tracklog/kafka-libs`. The
registry is 160 MB, so it is fetched only in CI or when `-m registry` asks for it; once there it is always used.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NoReturn

import pytest
import redis
import yaml

from tests.support.apicurio import JAVA_MAJOR_MIN as APICURIO_JAVA_MAJOR_MIN
from tests.support.apicurio import Apicurio, apicurio_path, fetch_apicurio
from tracklog.infra.stack.java import find_java
from tracklog.infra.stack.kafka_libs import fetch_libs
from tracklog.infra.stack.kafka_probe import brokers_of
from tracklog.infra.stack.kafka_server import JAVA_MAJOR_MIN, QUICK_START, KafkaServer
from tracklog.infra.stack.ports import LOOPBACK, free_ports
from tracklog.infra.stack.process import wait_until
from tracklog.infra.stack.valkey_server import ValkeyServer, find_valkey
from tracklog.schemas.errors import StackError

ROOT = Path(__file__).resolve().parent.parent
LIBS_CACHE = ROOT / ".tracklog" / "kafka-libs"
REGISTRY_CACHE = ROOT / ".tracklog" / "apicurio"
COMPOSE = ROOT / "infra" / "compose.yaml"
SESSION_TOKEN = secrets.token_hex(3)
CONTAINER_TIMEOUT_S = 90.0

KAFKA_FIXTURES = {"kafka_bootstrap", "kafka_server", "kafka_cluster_factory"}
REDIS_FIXTURES = {"redis_url", "redis_db", "valkey_factory"}

ClusterFactory = Callable[..., KafkaServer]
ValkeyFactory = Callable[..., ValkeyServer]


def missing_service(reason: str) -> NoReturn:
    """A laptop may lack a service; CI may not."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"CI must have this service: {reason}", pytrace=False)
    pytest.skip(reason)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks tests by the services they ask for, so that `-m 'not kafka'` needs no care from their authors."""
    for item in items:
        asked = set(getattr(item, "fixturenames", ()))
        if asked & KAFKA_FIXTURES:
            item.add_marker(pytest.mark.kafka)
        if asked & REDIS_FIXTURES:
            item.add_marker(pytest.mark.redis)
        if "registry_url" in asked:
            item.add_marker(pytest.mark.registry)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Fetches jars before the first test starts, outside of any test's time-out."""
    if session.config.option.collectonly:
        return
    marks = {mark.name for item in session.items for mark in item.iter_markers()}
    try:
        if "kafka" in marks and "TRACKLOG_TEST_KAFKA" not in os.environ:
            fetch_libs(LIBS_CACHE)
        if "registry" in marks and registry_wanted(session.config):
            fetch_apicurio(REGISTRY_CACHE)
    except StackError as error:
        warnings.warn(f"not all jars are there: {error}", stacklevel=1)  # the fixtures skip or fail with the reason


@pytest.fixture
def fresh_prefix(request: pytest.FixtureRequest) -> str:
    return f"t{SESSION_TOKEN}-{hashlib.sha256(request.node.nodeid.encode()).hexdigest()[:10]}"


@pytest.fixture(scope="session")
def kafka_libs() -> Path:
    try:
        find_java(JAVA_MAJOR_MIN)
        return fetch_libs(LIBS_CACHE)
    except StackError as error:
        missing_service(str(error))


@pytest.fixture(scope="session")
def kafka_bootstrap(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    given = os.environ.get("TRACKLOG_TEST_KAFKA")
    if given is not None:
        yield given
        return
    if docker_reason() is None:
        with kafka_container() as bootstrap:
            yield bootstrap
        return
    libs = request.getfixturevalue("kafka_libs")
    server = KafkaServer(tmp_path_factory.mktemp("kafka"), libs, jvm_flags=QUICK_START)
    try:
        yield server.start()
    finally:
        server.kill()


def docker_reason() -> str | None:
    """None when a Docker engine answers, else why not."""
    try:
        import docker  # type: ignore[import-untyped, unused-ignore]

        docker.from_env(timeout=5).ping()
    except ImportError:
        return "the docker package is not installed"
    except Exception as error:  # noqa: BLE001 - whatever the engine's client throws, there is no engine
        return f"no Docker engine answers: {error}"
    return None


@contextmanager
def kafka_container() -> Iterator[str]:
    """The Kafka of infra/compose.yaml in a container of its own, on a free port."""
    from testcontainers.core.container import DockerContainer

    service = yaml.safe_load(COMPOSE.read_text())["services"]["kafka"]
    port = free_ports(1)[0]
    environment = service["environment"] | {"KAFKA_ADVERTISED_LISTENERS": f"PLAINTEXT://{LOOPBACK}:{port}"}
    container = DockerContainer(service["image"], ports=None).with_kwargs(ports={"9092/tcp": (LOOPBACK, port)})
    for name, value in environment.items():
        container.with_env(name, value)
    with container:
        assert wait_until(lambda: _answers(port), CONTAINER_TIMEOUT_S), container.get_logs()
        yield f"{LOOPBACK}:{port}"


def _answers(port: int) -> bool:
    try:
        return brokers_of(LOOPBACK, port, 2.0) == {1}
    except OSError:
        return False


@contextmanager
def clusters(home: Path, libs: Path) -> Iterator[ClusterFactory]:
    started: list[KafkaServer] = []

    def make(nodes: int = 1, overrides: Mapping[str, str] | None = None) -> KafkaServer:
        folder = home / f"cluster-{len(started)}"
        server = KafkaServer(folder, libs, nodes=nodes, overrides=overrides, jvm_flags=QUICK_START)
        started.append(server)
        server.start()
        return server

    try:
        yield make
    finally:
        for server in started:
            server.kill()


@pytest.fixture(scope="module")
def kafka_cluster_factory(kafka_libs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterFactory]:
    with clusters(tmp_path_factory.mktemp("kafka"), kafka_libs) as make:
        yield make


@pytest.fixture
def kafka_server(kafka_libs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    with clusters(tmp_path_factory.mktemp("kafka"), kafka_libs) as make:
        yield make()


@pytest.fixture(scope="session")
def registry_url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if not registry_wanted(request.config):
        pytest.skip("the Apicurio registry (160 MB) is not fetched yet: `pytest -m registry` does it")
    try:
        find_java(APICURIO_JAVA_MAJOR_MIN)
        program = fetch_apicurio(REGISTRY_CACHE)
    except StackError as error:
        missing_service(str(error))
    server = Apicurio(tmp_path_factory.mktemp("apicurio"), program)
    try:
        yield server.start()
    finally:
        server.kill()


def registry_wanted(config: pytest.Config) -> bool:
    asked_for = config.option.markexpr.strip() == "registry"
    return asked_for or os.environ.get("CI") == "true" or apicurio_path(REGISTRY_CACHE).is_dir()


@pytest.fixture(scope="session")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    given = os.environ.get("TRACKLOG_TEST_REDIS")
    if given is not None:
        with redis.Redis.from_url(given) as client:
            assert client.dbsize() == 0, "TRACKLOG_TEST_REDIS must name an empty database: the tests empty it"
        yield given
        return
    require_valkey()
    server = ValkeyServer(tmp_path_factory.mktemp("redis"), persistence="none")
    try:
        yield server.start()
    finally:
        server.kill()


def require_valkey() -> None:
    try:
        find_valkey()
    except StackError as error:
        missing_service(str(error))


@pytest.fixture
def redis_db(redis_url: str) -> Iterator[str]:
    with redis.Redis.from_url(redis_url) as client:
        client.flushdb()
        yield redis_url
        client.flushdb()


@pytest.fixture
def valkey_factory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ValkeyFactory]:
    require_valkey()
    with ExitStack() as stack:

        def make(**options: Any) -> ValkeyServer:
            server = ValkeyServer(tmp_path_factory.mktemp("redis"), **options)
            stack.callback(server.kill)
            server.start()
            return server

        yield make


@pytest.fixture
def log_urls(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], str]:
    def url_of(kind: str) -> str:
        if kind == "kafka":
            return f"kafka://{request.getfixturevalue('kafka_bootstrap')}"
        return {"sqlite": f"sqlite:{tmp_path / 'log.db'}", "memory": "memory:"}[kind]

    return url_of
