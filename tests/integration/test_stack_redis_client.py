"""Connecting to a real server: what is safe, what is refused, and that every failure is named."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import redis
from redis import exceptions

from tracklog.infra.redis_client import address_of, check_safe, connect, store_errors
from tracklog.infra.stack.ports import free_ports
from tracklog.infra.stack.process import wait_until
from tracklog.infra.stack.valkey_server import ValkeyServer
from tracklog.schemas.errors import SettingsError, StoreError, StoreUnavailable, StoreUnsafe

ValkeyFactory = Callable[..., ValkeyServer]
SECRET = "s3cret-%2F-pass"


def test_a_connected_client_reads_what_it_wrote(redis_db: str) -> None:
    client = connect(redis_db, timeout_s=5)
    client.set("key", b"\x00\xff")
    assert client.get("key") == b"\x00\xff"


def test_nobody_at_the_address_is_an_error_that_names_it_but_no_password() -> None:
    [port] = free_ports(1)
    with pytest.raises(StoreUnavailable, match=f"127.0.0.1:{port}") as caught:
        connect(f"redis://user:{SECRET}@127.0.0.1:{port}/0", timeout_s=2)
    assert "s3cret" not in f"{caught.value!r} {caught.value} {caught.value.__cause__}"


def test_a_missing_unix_socket_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match=r"none\.sock"):
        connect(f"unix://{tmp_path}/none.sock?db=0", timeout_s=2)


def test_a_server_that_never_answers_is_an_error_within_the_bound() -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute, pytest.raises(StoreUnavailable, match="does not serve"):
        connect(f"redis://127.0.0.1:{mute.getsockname()[1]}/0", timeout_s=0.2, retries=1)


def test_a_frozen_server_is_an_error_and_serves_again_when_woken(valkey_factory: ValkeyFactory) -> None:
    server = valkey_factory(persistence="none")
    client = connect(server.url, timeout_s=0.3, retries=0)
    server.process.freeze()
    with pytest.raises(StoreUnavailable), store_errors(client):
        client.get("key")
    server.process.thaw()
    server.wait_ready()
    with store_errors(client):
        assert client.get("key") is None


def test_a_client_survives_the_restart_of_its_server(valkey_factory: ValkeyFactory) -> None:
    server = valkey_factory(persistence="always")
    client = connect(server.url, timeout_s=5)
    client.set("kept", "yes")
    server.kill()
    with pytest.raises(StoreUnavailable), store_errors(client):
        client.get("kept")
    server.start()
    assert client.get("kept") == b"yes"


def test_a_server_that_may_evict_is_unsafe(valkey_factory: ValkeyFactory) -> None:
    server = valkey_factory(persistence="none", options=("--maxmemory-policy", "allkeys-lru"))
    with pytest.raises(StoreUnsafe, match="allkeys-lru"):
        connect(server.url, timeout_s=5)


@pytest.mark.parametrize("policy", ["noeviction", "volatile-ttl"])
def test_where_config_is_refused_the_policy_is_read_from_info(valkey_factory: ValkeyFactory, policy: str) -> None:
    hidden = ("--maxmemory-policy", policy, "--rename-command", "CONFIG", "")
    client = connect(valkey_factory(persistence="none", options=hidden).url, timeout_s=5, check=False)
    if policy == "noeviction":
        check_safe(client)
        assert client.ping()
    else:
        with pytest.raises(StoreUnsafe, match="volatile-ttl"):
            check_safe(client)


def test_a_wrong_password_is_refused_without_being_shown(valkey_factory: ValkeyFactory) -> None:
    server = valkey_factory(tcp=True, persistence="none")
    with redis.Redis.from_url(server.url) as admin:
        admin.config_set("requirepass", "right")
    address = server.url.removeprefix("redis://")

    with pytest.raises(StoreError, match="refuses us") as caught:
        connect(f"redis://:{SECRET}@{address}", timeout_s=5)
    assert "s3cret" not in f"{caught.value} {caught.value.__cause__}"
    assert connect(f"redis://:right@{address}", timeout_s=5).ping()


def test_an_address_that_cannot_be_read_does_not_show_its_password() -> None:
    with pytest.raises(SettingsError, match="cannot be read") as caught:
        connect("redis://user:s3cret/with/slash@127.0.0.1:6379/0", timeout_s=1)
    assert "s3cret" not in f"{caught.value} {caught.value.__cause__}"


def test_an_unknown_scheme_is_refused() -> None:
    with pytest.raises(SettingsError, match="memcached"):
        connect("memcached://127.0.0.1:11211", timeout_s=1)


def test_a_cluster_is_one_more_scheme(valkey_factory: ValkeyFactory) -> None:
    server = valkey_factory(tcp=True, persistence="none", options=("--cluster-enabled", "yes"))
    with redis.Redis.from_url(server.url) as admin:
        admin.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        assert wait_until(lambda: admin.cluster("info")["cluster_state"] == "ok", 10)
    address = server.url.removeprefix("redis://").removesuffix("/0")

    client = connect(f"redis+cluster://{address}", timeout_s=5)
    client.set("{7}:key", "value")
    assert client.get("{7}:key") == b"value"
    assert address_of(client) == address

    with redis.Redis.from_url(server.url) as admin:
        admin.config_set("maxmemory-policy", "allkeys-random")
    with pytest.raises(StoreUnsafe, match="allkeys-random"):
        check_safe(client)


def test_an_absent_cluster_is_an_error_that_names_it() -> None:
    [port] = free_ports(1)
    with pytest.raises(StoreUnavailable, match=f"127.0.0.1:{port}"):
        connect(f"redis+cluster://127.0.0.1:{port}", timeout_s=1)


def library_errors() -> list[type[Exception]]:
    return [
        found
        for found in vars(exceptions).values()
        if isinstance(found, type) and issubclass(found, exceptions.RedisError | exceptions.RedisClusterException)
    ]


@pytest.mark.parametrize("error", library_errors(), ids=lambda error: error.__name__)
def test_every_error_of_the_library_becomes_a_store_error(error: type[Exception], redis_url: str) -> None:
    client = connect(redis_url, timeout_s=5)
    raised = error.__new__(error)
    Exception.__init__(raised, "as the library says it")
    with pytest.raises(StoreError, match="as the library says it"), store_errors(client):
        raise raised


def test_a_frozen_server_is_an_error_within_twice_the_bound_however_often_it_is_tried(
    valkey_factory: ValkeyFactory,
) -> None:
    server = valkey_factory(persistence="none")
    client = connect(server.url, timeout_s=0.5, retries=5)
    pipeline = client.pipeline()
    pipeline.get("key")
    server.process.freeze()

    def refused(call: Callable[[], object]) -> float:
        began_s = time.monotonic()
        with pytest.raises(StoreUnavailable), store_errors(client):
            call()
        return time.monotonic() - began_s

    try:
        assert refused(lambda: client.get("key")) < 1.0  # on a connection that was there
        assert refused(lambda: client.get("key")) < 1.0  # on one to be made
        assert refused(lambda: connect(server.url, timeout_s=0.5, retries=5)) < 1.0
        assert refused(pipeline.execute) < 1.0
    finally:
        server.process.thaw()


@pytest.mark.parametrize("option", ["bogus=hunter2", "retry=hunter2", "protocol=hunter2", "socket_timeout=99"])
@pytest.mark.parametrize("scheme", ["redis", "redis+cluster"])
def test_an_option_that_cannot_be_set_is_named_and_its_value_is_not(scheme: str, option: str) -> None:
    with pytest.raises(SettingsError) as caught:
        connect(f"{scheme}://127.0.0.1:1/0?{option}", timeout_s=1)
    assert option.partition("=")[0] in str(caught.value)
    assert "hunter2" not in str(caught.value)
