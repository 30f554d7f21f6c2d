"""Redis that is killed, wiped, set back, frozen or flushed while processors fold under load: equal within 30 s."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest

from tests.conftest import ValkeyFactory
from tests.integration.test_processors import all_of_them, assert_all_equal_a_fresh_fold, at_work, running
from tests.support.beside import beside
from tests.support.projecting import World, append_runs, world_on
from tracklog.infra.clock import SystemClock
from tracklog.infra.stack.process import wait_until
from tracklog.infra.stack.valkey_server import ValkeyServer
from tracklog.processors.loading import BUILTIN
from tracklog.schemas.errors import StoreError

pytestmark = [pytest.mark.faults, pytest.mark.timeout(300)]

HEALED_S_MAX = 30.0
APPEND_EVERY_S = 0.2
FROZEN_S = 8.0
"""Longer than a client waits for an answer: a step may then run twice."""


def load(world: World) -> AbstractContextManager[None]:
    """Runs are appended all the time."""

    def append(stop: threading.Event) -> None:
        count = 0
        while not stop.wait(APPEND_EVERY_S):
            append_runs(world, 3, first=count)
            count += 3

    return beside(append, HEALED_S_MAX)


def reached(world: World, ends: dict[int, int]) -> bool:
    client: Any = world.client
    try:
        return all(
            int(client.hget(f"{world.settings.prefix}:{{{p}}}:{kind.name}:v1:checkpoint", "position") or 0) >= end
            for kind in BUILTIN
            for p, end in ends.items()
        )
    except (StoreError, Exception):  # noqa: BLE001 - it is away
        return False


def passed(seconds: float) -> None:
    clock = SystemClock()
    until_s = clock.monotonic_s() + seconds
    assert wait_until(lambda: clock.monotonic_s() >= until_s, seconds * 2)


def set_back(world: World, server: ValkeyServer) -> None:
    world.client.save()
    passed(2.0)
    server.kill()
    server.start()


def emptied(world: World, server: ValkeyServer) -> None:
    server.kill()
    server.wipe()
    server.start()


def flushed(world: World, server: ValkeyServer) -> None:
    world.client.script_flush()
    world.client.flushall()


def frozen(world: World, server: ValkeyServer) -> None:
    server.process.freeze()
    passed(FROZEN_S)
    server.process.thaw()


def slow(world: World, server: ValkeyServer) -> None:
    client: Any = world.client
    for _ in range(4):
        client.execute_command("CLIENT", "PAUSE", 700, "WRITE")
        passed(1.0)


@pytest.mark.parametrize("fault", [set_back, emptied, flushed, frozen, slow])
def test_whatever_happens_to_redis_under_load_it_is_as_the_log_says_within_thirty_seconds(
    log_urls: Callable[[str], str],
    valkey_factory: ValkeyFactory,
    fresh_prefix: str,
    fault: Callable[[World, ValkeyServer], None],
) -> None:
    server = valkey_factory(persistence="none")
    with world_on(log_urls("kafka"), server.url, fresh_prefix) as world:
        work = at_work(world, all_of_them(), builtin=True)
        with running(work):
            with load(world):
                assert wait_until(lambda: reached(world, dict.fromkeys(world.ends(), 20)), HEALED_S_MAX)
                fault(world, server)
                ends = world.ends()
                assert wait_until(lambda: reached(world, ends), HEALED_S_MAX), f"after {fault.__name__}"
            ends = world.ends()
            assert wait_until(lambda: reached(world, ends), HEALED_S_MAX)
        assert_all_equal_a_fresh_fold(world, all_of_them())
