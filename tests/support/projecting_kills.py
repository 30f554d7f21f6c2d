"""Killing projection processes at random moments, and looking at what is left."""

from __future__ import annotations

import random

from tests.support.projecting import World, append_runs, assert_equals_fresh_fold, world_on
from tests.support.projecting_process import projecting
from tracklog.infra.clock import SystemClock
from tracklog.infra.stack.process import wait_until

RUNS_A_ROUND = 12
ROUND_S = 40.0


def kill_in_rounds(world: World, redis_url: str, how: str, rounds: int, seed: int) -> None:
    """Each round appends, lets a process get on for a random time after its first batch, and kills it."""
    chance = random.Random(seed)
    keys = world.running().store.keys

    def progress() -> int:
        return sum(int(world.client.hget(keys.checkpoint(p), "position") or 0) for p in world.ends())

    for number in range(rounds):
        append_runs(world, RUNS_A_ROUND, first=number * RUNS_A_ROUND)
        before, total = progress(), sum(world.ends().values())
        with projecting(world.log.url, redis_url, world.settings.prefix, how):
            wanted = before + chance.randint(1, max(1, (total - before) * 3 // 4))
            assert wait_until(lambda at=wanted: progress() >= at, ROUND_S), f"round {number}"  # type: ignore[misc]
            _pass_time(chance.uniform(0, 0.01))


def _pass_time(seconds: float) -> None:
    clock = SystemClock()
    began = clock.monotonic_s()
    wait_until(lambda: clock.monotonic_s() - began >= seconds, 5)


def killed_and_healed(log_url: str, redis_url: str, prefix: str, how: str, rounds: int, seed: int) -> int:
    with world_on(log_url, redis_url, prefix) as world:
        kill_in_rounds(world, redis_url, how, rounds, seed)
        world.drain()
        return assert_equals_fresh_fold(world)
