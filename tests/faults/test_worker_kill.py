"""Workers in processes of their own on the embedded log: killed, another one goes on; told to stop, they move."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.ledger import Ledger, ledger
from tests.support.worker_agents import CALLS
from tests.support.worker_process import BOUND_S, Fleet
from tests.support.writing import make_topics
from tracklog.infra.log.open import open_log
from tracklog.producers.client import Client
from tracklog.schemas.topics import Topics

pytestmark = pytest.mark.faults

RUNS = 4


@pytest.fixture
def fleet(log_urls: Callable[[str], str], fresh_prefix: str, tmp_path: Path) -> Iterator[tuple[Fleet, Ledger]]:
    log = open_log(log_urls("sqlite"))
    make_topics(log, Topics(fresh_prefix))
    with ledger() as (counted, url):
        yield Fleet(log, fresh_prefix, tmp_path / "blobs", env={"LEDGER_URL": url}), counted
    log.close()


async def submitted(fleet: Fleet) -> tuple[Client, list[str]]:
    client = Client(fleet.log, fleet.topics)
    return client, [await client.submit("traveller", "book it", id=f"trip-{n}") for n in range(RUNS)]


async def test_runs_of_a_killed_worker_are_finished_by_another_with_each_effect_once(
    fleet: tuple[Fleet, Ledger],
) -> None:
    workers, counted = fleet
    client, ids = await submitted(workers)
    with workers.worker() as first:
        await workers.until_events(ids, "ToolIntent", RUNS * 2)
        os.kill(first.pid, signal.SIGKILL)
    with workers.worker():
        results = [await client.result(one, wait_s=BOUND_S) for one in ids]
    assert [result.value for result in results] == ["done"] * RUNS
    assert len(counted.made) == RUNS * CALLS
    assert set(counted.made.values()) == {1}
    assert all(len(workers.claims(one)) == 2 for one in ids)


async def test_a_worker_that_is_told_to_stop_moves_its_runs_and_ends_well(fleet: tuple[Fleet, Ledger]) -> None:
    workers, counted = fleet
    client, ids = await submitted(workers)
    with workers.worker() as first:
        await workers.until_events(ids, "ToolIntent", RUNS)
        first.terminate()
        said, _ = await asyncio.to_thread(first.communicate, timeout=BOUND_S)
    assert first.returncode == 0, said
    assert [workers.names(one)[-1] for one in ids] == ["OwnershipReleased"] * RUNS
    with workers.worker():
        results = [await client.result(one, wait_s=BOUND_S) for one in ids]
    assert [result.value for result in results] == ["done"] * RUNS
    assert set(counted.made.values()) == {1}
    assert set(counted.asked.values()) == {1}, "nothing was in doubt"
