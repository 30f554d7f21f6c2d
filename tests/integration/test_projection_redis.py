"""Redis that goes away, comes back older, or is not fit: nothing is lost, and what cannot work is said."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.conftest import ValkeyFactory
from tests.support.projecting import (
    World,
    append_runs,
    assert_equals_fresh_fold,
    caught_up,
    followed,
    wait_caught_up,
    world_on,
)
from tracklog.infra.clock import SystemClock
from tracklog.infra.partition_loop import PartitionLoop
from tracklog.infra.redis_client import connect
from tracklog.infra.stack.process import wait_until
from tracklog.infra.stack.valkey_server import ValkeyServer
from tracklog.schemas.errors import StoreError, StoreUnavailable, StoreUnsafe, TracklogError

LogUrls = Callable[[str], str]


@pytest.fixture
def server(valkey_factory: ValkeyFactory) -> ValkeyServer:
    return valkey_factory(persistence="none")


@pytest.fixture
def world(log_urls: LogUrls, server: ValkeyServer, fresh_prefix: str) -> Iterator[World]:
    with world_on(log_urls("sqlite"), server.url, fresh_prefix) as made:
        yield made


def test_a_redis_restored_from_an_older_snapshot_is_healed(world: World, server: ValkeyServer) -> None:
    with followed(world):
        append_runs(world, 10)
        wait_caught_up(world)
        world.client.save()
        append_runs(world, 10, first=10)
        wait_caught_up(world)

        server.kill()
        server.start()

        assert not caught_up(world)(), "the snapshot was to be older"
        append_runs(world, 10, first=20)
        wait_caught_up(world)
    assert assert_equals_fresh_fold(world) == 30


def test_a_redis_that_was_killed_and_comes_back_empty_is_filled_again(world: World, server: ValkeyServer) -> None:
    with followed(world):
        append_runs(world, 10)
        wait_caught_up(world)

        server.kill()
        append_runs(world, 10, first=10)
        server.start()

        wait_caught_up(world)
    assert assert_equals_fresh_fold(world) == 20


def test_the_loop_keeps_its_place_while_redis_is_away(world: World, server: ValkeyServer) -> None:
    append_runs(world, 10)
    running = world.running()
    with followed(world):
        wait_caught_up(world)
        world.client.save()
        server.kill()
        append_runs(world, 10, first=10)
        assert wait_until(lambda: not server.answers(), 10)
        server.start()
        wait_caught_up(world)
    assert running.store.checkpoint(0) is not None
    assert assert_equals_fresh_fold(world) == 20


def test_the_loop_gives_up_on_a_redis_that_stays_away(world: World, server: ValkeyServer) -> None:
    append_runs(world, 3)
    running = world.running()
    loop = PartitionLoop(world.log, world.topic, running.bundle, clock=SystemClock(), outage_s_max=0.3)
    server.kill()

    with pytest.raises(StoreUnavailable, match="does not serve") as caught:
        loop.drain()

    assert caught.value.exit_code == 3


def test_a_redis_that_is_absent_is_an_error_within_a_bound(server: ValkeyServer) -> None:
    server.kill()
    clock = SystemClock()
    began = clock.monotonic_s()

    with pytest.raises(StoreUnavailable):
        connect(server.url, timeout_s=1)

    assert clock.monotonic_s() - began < 6


def test_a_redis_that_may_evict_is_refused(valkey_factory: ValkeyFactory) -> None:
    evicting = valkey_factory(persistence="none", options=("--maxmemory-policy", "allkeys-lru"))

    with pytest.raises(StoreUnsafe, match="allkeys-lru"):
        connect(evicting.url, timeout_s=5)


def test_a_full_redis_is_waited_for_with_nothing_half_written(world: World) -> None:
    append_runs(world, 5)
    world.drain()
    append_runs(world, 20, first=5)
    world.client.config_set("maxmemory", "1mb")
    waits_for(world, "is full")

    world.client.config_set("maxmemory", "0")
    world.drain()
    assert assert_equals_fresh_fold(world) == 25


def test_a_redis_that_cannot_write_to_its_disk_is_waited_for_and_then_written(
    world: World, server: ValkeyServer
) -> None:
    """Its snapshots fail, so it takes no writes, as with a disk that is full."""
    append_runs(world, 3)
    (server.home / "dump.rdb").mkdir()  # a file cannot be put in its place
    world.client.config_set("save", "3600 1")
    world.client.bgsave()
    assert wait_until(lambda: world.client.info("persistence")["rdb_last_bgsave_status"] == "err", 10)
    waits_for(world, "takes no writes: .*MISCONF .*room")

    said = list[TracklogError | None]()
    with followed(world) as running:
        running.loop.on_outage = said.append
        assert wait_until(lambda: bool(said), 10)
        (server.home / "dump.rdb").rmdir()
        world.client.bgsave()
        wait_caught_up(world)
    assert assert_equals_fresh_fold(world) == 3
    assert [type(one) for one in said] == [StoreUnavailable, type(None)]


def waits_for(world: World, what: str) -> None:
    """Given a bound that is soon over, the loop waits so long and then says what for."""
    with pytest.raises(StoreUnavailable, match=what):
        PartitionLoop(world.log, world.topic, world.running().bundle, clock=SystemClock(), outage_s_max=0.3).drain()


def test_a_read_only_replica_is_waited_for_and_then_written(world: World) -> None:
    append_runs(world, 3)
    world.client.replicaof("127.0.0.1", 1)
    running = world.running
    world.client.config_set("replica-serve-stale-data", "yes")
    with pytest.raises(StoreError):
        PartitionLoop(world.log, world.topic, running().bundle, clock=SystemClock(), outage_s_max=0.3).drain()

    world.client.replicaof("no", "one")
    world.drain()

    assert assert_equals_fresh_fold(world) == 3
