"""Processors on other kinds of Redis: behind sentinels, a failover losing writes; on a cluster, its slots moving."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import ValkeyFactory
from tests.integration.test_processors import all_of_them, assert_all_equal_a_fresh_fold, at_work, running
from tests.support.projecting import World, append_runs, world_on
from tests.support.redis_kinds import admin_of, behind_sentinel, cluster_of_three, port_of
from tracklog.infra.redis_client import address_of, connect
from tracklog.infra.stack.process import wait_until
from tracklog.schemas.errors import SettingsError, StoreError

LogUrls = Callable[[str], str]
BOUND_S = 40.0


def stored_everything(world: World) -> bool:
    try:
        return world.positions() == world.ends()
    except StoreError:
        return False


def test_a_failover_that_loses_acknowledged_writes_is_noticed_and_healed(
    log_urls: LogUrls, valkey_factory: ValkeyFactory, fresh_prefix: str, tmp_path: Path
) -> None:
    with (
        behind_sentinel(valkey_factory, tmp_path) as servers,
        world_on(log_urls("sqlite"), servers.url, fresh_prefix) as world,
    ):
        assert address_of(world.client).startswith("store by 127.0.0.1:")
        work = at_work(world, all_of_them(), builtin=True)
        with running(work):
            append_runs(world, 8)
            assert wait_until(lambda: stored_everything(world), BOUND_S)
            servers.replica.process.freeze()
            with admin_of(servers.primary) as admin:
                admin.execute_command("CLIENT", "KILL", "TYPE", "replica")
            append_runs(world, 8, first=8)  # folded and acknowledged by a primary that nobody copies
            assert wait_until(lambda: stored_everything(world), BOUND_S)

            servers.primary.kill()
            servers.replica.process.thaw()

            append_runs(world, 4, first=16)
            assert wait_until(lambda: stored_everything(world), BOUND_S)
            assert work.bundle.counts.records > sum(world.ends().values()), "nothing was lost, so nothing shown"
        with admin_of(servers.replica) as admin:
            assert admin.role()[0] == b"master"
        assert_all_equal_a_fresh_fold(world, all_of_them())


def test_of_three_sentinels_two_fail_over_when_the_first_of_the_address_is_gone(
    log_urls: LogUrls, valkey_factory: ValkeyFactory, fresh_prefix: str, tmp_path: Path
) -> None:
    with (
        behind_sentinel(valkey_factory, tmp_path, sentinels=3) as servers,
        world_on(log_urls("sqlite"), servers.url, fresh_prefix) as world,
    ):
        work = at_work(world, all_of_them(), builtin=True)
        with running(work):
            append_runs(world, 8)
            assert wait_until(lambda: stored_everything(world), BOUND_S)
            # given one sentinel, the one that clients ask first, that is gone; then the primary goes too
            servers.sentinels[0].kill()
            servers.primary.kill()
            # then the others agree on the replica, and whoever folds and reads finds it
            append_runs(world, 8, first=8)
            assert wait_until(lambda: stored_everything(world), BOUND_S)
        with admin_of(servers.replica) as admin:
            assert admin.role()[0] == b"master"
        assert_all_equal_a_fresh_fold(world, all_of_them())


def test_a_cluster_whose_slots_move_meanwhile_holds_the_same(
    log_urls: LogUrls, valkey_factory: ValkeyFactory, fresh_prefix: str
) -> None:
    with (
        cluster_of_three(valkey_factory) as cluster,
        world_on(log_urls("sqlite"), cluster.url, fresh_prefix) as world,
    ):
        work = at_work(world, all_of_them(), builtin=True)
        with running(work):
            append_runs(world, 10)
            assert wait_until(lambda: stored_everything(world), BOUND_S)
            moved = 0
            for partition in world.ends():
                append_runs(world, 4, first=10 + 4 * partition)
                moved += cluster.move(f"{{{partition}}}")
            assert moved > 100
            assert wait_until(lambda: stored_everything(world), BOUND_S)
        assert_all_equal_a_fresh_fold(world, all_of_them())


@pytest.mark.parametrize(
    "address", ["redis+sentinel://127.0.0.1:1", "redis+sentinel:///store", "redis+sentinel://127.0.0.1:x/store"]
)
def test_an_address_of_sentinels_that_names_no_service_or_host_is_refused(address: str) -> None:
    with pytest.raises(SettingsError, match="cannot be read"):
        connect(address, timeout_s=1)


def test_a_service_that_no_sentinel_knows_is_named(valkey_factory: ValkeyFactory, tmp_path: Path) -> None:
    with behind_sentinel(valkey_factory, tmp_path) as servers:
        other = servers.url.replace("/store/0", "/other/0").replace("://", "://user:s3cret@")
        with pytest.raises(StoreError, match=r"other by 127\.0\.0\.1") as caught:
            connect(other, timeout_s=1, retries=0)
    assert "s3cret" not in f"{caught.value} {caught.value.__cause__}"
    assert port_of(servers.primary) > 0
