"""What goes wrong around workers on a broker: Redis is gone while they run, the clock of one is set back."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from tests.conftest import ValkeyFactory
from tests.support.ledger import Ledger, ledger
from tests.support.projecting import World, assert_equals_fresh_fold, world_on
from tests.support.projecting_process import projecting
from tests.support.worker_agents import CALLS, SET_BACK_US
from tests.support.worker_process import BOUND_S, PARTITIONS, Fleet
from tests.support.writing import make_topics
from tracklog.infra.clock import SystemClock
from tracklog.infra.log.open import open_log
from tracklog.infra.stack.process import wait_until
from tracklog.producers.client import Client
from tracklog.schemas.errors import StoreError
from tracklog.schemas.topics import Topics

pytestmark = [pytest.mark.faults, pytest.mark.kafka]

RUNS = 6


@pytest.fixture
def fleet(kafka_bootstrap: str, fresh_prefix: str, tmp_path: Path) -> Iterator[tuple[Fleet, Ledger]]:
    log = open_log(f"kafka://{kafka_bootstrap}")
    make_topics(log, Topics(fresh_prefix), PARTITIONS)
    with ledger() as (counted, url):
        yield Fleet(log, fresh_prefix, tmp_path / "blobs", env={"LEDGER_URL": url}), counted
    log.close()


def folded(world: World) -> Mapping[int, int]:
    """How far the projection is; nothing while Redis is empty."""
    try:
        return world.positions()
    except StoreError:
        return {}


async def test_redis_gone_while_agents_run_holds_up_none_and_the_projection_catches_up(
    fleet: tuple[Fleet, Ledger], valkey_factory: ValkeyFactory
) -> None:
    workers, counted = fleet
    valkey = valkey_factory(persistence="none")
    client = Client(workers.log, workers.topics)
    with (
        world_on(workers.log.url, valkey.url, workers.prefix) as world,
        projecting(workers.log.url, valkey.url, workers.prefix, "group"),
        workers.worker(),
    ):
        ids = [await client.submit("traveller", "book it", id=f"trip-{n}") for n in range(RUNS)]
        await workers.until_events(ids, "ToolIntent", RUNS)
        assert wait_until(lambda: sum(folded(world).values()) > 0, BOUND_S)
        valkey.kill()
        results = [await client.result(one, wait_s=BOUND_S) for one in ids]
        valkey.start()
        assert wait_until(lambda: folded(world) == world.ends(), BOUND_S)
        assert assert_equals_fresh_fold(world) == RUNS

    assert [result.value for result in results] == ["done"] * RUNS
    assert set(counted.made.values()) == {1}


async def test_a_worker_whose_clock_is_set_back_goes_on_and_so_does_the_one_that_takes_over(
    fleet: tuple[Fleet, Ledger],
) -> None:
    workers, counted = fleet
    client = Client(workers.log, workers.topics)
    ids = [await client.submit("traveller", "book it", id=f"trip-{n}") for n in range(RUNS)]
    with replace(workers, agents=("tests.support.worker_agents:set_back",)).worker() as first:
        await workers.until_events(ids, "ToolIntent", RUNS * 4)
        os.kill(first.pid, signal.SIGKILL)
    with replace(workers, agents=("tests.support.worker_agents:set_back",)).worker():
        results = [await client.result(one, wait_s=BOUND_S) for one in ids]

    assert [result.value for result in results] == ["done"] * RUNS
    assert len(counted.made) == RUNS * CALLS
    assert set(counted.made.values()) == {1}
    now_us = SystemClock().now_us()
    written_us = [event.envelope.recorded_at for one in ids for event in workers.events(one)]
    assert min(written_us) < now_us - SET_BACK_US + BOUND_S * 1_000_000, "the clock was set back"
