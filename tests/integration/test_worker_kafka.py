"""Workers in processes of their own on a broker: who goes on, how soon, and that each effect is there once."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tests.support.ledger import Ledger, ledger
from tests.support.worker_agents import CALLS
from tests.support.worker_process import BOUND_S, PARTITIONS, Fleet
from tests.support.writing import make_topics
from tracklog.infra.clock import SystemClock
from tracklog.infra.log.open import open_log
from tracklog.infra.stack.process import wait_until
from tracklog.producers.client import Client
from tracklog.schemas.topics import Topics

pytestmark = pytest.mark.kafka

SESSION_S = 2.0
"""The brokers of the tests take a member for dead after this (infra.stack.kafka_settings)."""
TAKEOVER_S_MAX = SESSION_S + 10.0
"""And this long it may take on a busy machine until the next owner has read its partitions and claims."""
LAST_S = 8.0
"""How long the last call of a run waits for the kill, before which no run shall end; below the tool's time-out."""
RUNS = 8
"""So that each partition has some of them."""


@pytest.fixture
def fleet(kafka_bootstrap: str, fresh_prefix: str, tmp_path: Path) -> Iterator[tuple[Fleet, Ledger]]:
    log = open_log(f"kafka://{kafka_bootstrap}")
    make_topics(log, Topics(fresh_prefix), PARTITIONS)
    with ledger() as (counted, url):
        yield Fleet(log, fresh_prefix, tmp_path / "blobs", env={"LEDGER_URL": url}), counted
    log.close()


async def until_shared(fleet: Fleet, members: int) -> None:
    """Until so many members of the workers' group have partitions, and all partitions have one."""
    group, address = fleet.topics.group("workers"), fleet.log.url.removeprefix("kafka://")
    admin = AdminClient({"bootstrap.servers": address})

    def shared() -> bool:
        try:
            described = admin.describe_consumer_groups([group])[group].result(5)
        except (TimeoutError, KafkaException):
            return False  # the group's coordinator is just being made
        owned = [len(member.assignment.topic_partitions) for member in described.members]
        return sum(owned) == PARTITIONS and len([one for one in owned if one]) == members

    assert await asyncio.to_thread(wait_until, shared, BOUND_S), "the group did not come together"


async def submitted(fleet: Fleet, numbers: Sequence[int] = range(RUNS)) -> tuple[Client, list[str]]:
    client = Client(fleet.log, fleet.topics)
    return client, [await client.submit("traveller", "book it", id=f"trip-{n}") for n in numbers]


async def test_of_two_workers_with_one_name_one_is_killed_and_the_other_goes_on_after_the_session_time_out(
    fleet: tuple[Fleet, Ledger],
) -> None:
    workers, counted = fleet
    over = threading.Event()

    def held_up(what: str) -> None:
        if what.endswith(f".c{CALLS - 1} is asked for"):
            over.wait(LAST_S)

    counted.moment = held_up
    with workers.worker("twin") as killed, workers.worker("twin"):
        await until_shared(workers, 2)
        client, ids = await submitted(workers)
        for one in ids:
            await workers.until_events([one], "ToolIntent", 1)
        killed_us = SystemClock().now_us()
        os.kill(killed.pid, signal.SIGKILL)
        over.set()
        results = [await client.result(one, wait_s=BOUND_S) for one in ids]

    assert [result.value for result in results] == ["done"] * RUNS
    assert len(counted.made) == RUNS * CALLS
    assert set(counted.made.values()) == {1}
    moved = [claims for one in ids if len(claims := workers.claims(one)) > 1]
    assert 0 < len(moved) < RUNS, "each of the two had some"
    assert {len({nonce for nonce, _ in claims}) for claims in moved} == {2}
    assert max(at_us - killed_us for _, (_, at_us) in moved) < TAKEOVER_S_MAX * 1_000_000


async def test_a_worker_that_is_told_to_stop_moves_its_runs_to_the_other_at_once(fleet: tuple[Fleet, Ledger]) -> None:
    workers, counted = fleet
    with workers.worker() as first:
        await until_shared(workers, 1)
        client, ids = await submitted(workers)
        await workers.until_events(ids, "ToolIntent", RUNS)
        with workers.worker():
            first.terminate()
            said, _ = await asyncio.to_thread(first.communicate, timeout=BOUND_S)
            results = [await client.result(one, wait_s=BOUND_S) for one in ids]

    assert first.returncode == 0, said
    assert [result.value for result in results] == ["done"] * RUNS
    assert set(counted.made.values()) == {1}
    assert set(counted.asked.values()) == {1}, "nothing was in doubt"
    assert all("OwnershipReleased" in workers.names(one)[:-1] for one in ids)
