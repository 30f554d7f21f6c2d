"""Workers in processes of their own: killed, another one goes on; told to stop, they move what they have."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.ledger import ledger
from tests.support.worker_agents import CALLS
from tests.support.writing import make_topics
from tracklog.infra.log.open import open_log
from tracklog.infra.log.port import Log
from tracklog.producers.client import Client
from tracklog.producers.history import read_history
from tracklog.schemas.topics import Topics

ROOT = Path(__file__).resolve().parents[2]
BOUND_S = 60.0
RUNS = 4


@contextmanager
def worker(url: str, prefix: str, blobs: Path, ledger_url: str) -> Iterator[subprocess.Popen[str]]:
    """`tracklog worker` in a process, killed at the end if it still runs."""
    path = os.pathsep.join(
        [*(str(ROOT / r) for r in ("schemas", "infra", "producers", "processors", "consumers")), str(ROOT)]
    )
    shared = ["--log", url, "--prefix", prefix, "--blobs", str(blobs), "--set", "topics.partitions=3"]
    command = [
        sys.executable,
        "-m",
        "tests.support.command_line",
        *shared,
        "worker",
        "tests.support.worker_agents:traveller",
    ]
    process = subprocess.Popen(
        command,
        env={**os.environ, "PYTHONPATH": path, "LEDGER_URL": ledger_url},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


async def until_events(log: Log, prefix: str, ids: list[str], name: str, count: int) -> None:
    """Until so many events of this name are accepted in all."""
    async with asyncio.timeout(BOUND_S):
        while sum(names(log, prefix, one).count(name) for one in ids) < count:  # noqa: ASYNC110 - a log has no event
            await asyncio.sleep(0.05)


def names(log: Log, prefix: str, trajectory_id: str) -> list[str]:
    return [event.name for event, _ in read_history(log, Topics(prefix).events, trajectory_id)[1]]


@pytest.mark.faults
async def test_runs_of_a_killed_worker_are_finished_by_another_with_each_effect_once(
    log_urls: Callable[[str], str], fresh_prefix: str, tmp_path: Path
) -> None:
    url, blobs = log_urls("sqlite"), tmp_path / "blobs"
    log = open_log(url)
    make_topics(log, Topics(fresh_prefix))
    client = Client(log, Topics(fresh_prefix))
    ids = [await client.submit("traveller", "book it", id=f"trip-{n}") for n in range(RUNS)]
    with ledger() as (counted, ledger_url):
        with worker(url, fresh_prefix, blobs, ledger_url) as first:
            await until_events(log, fresh_prefix, ids, "ToolIntent", RUNS * 2)
            os.kill(first.pid, signal.SIGKILL)
        with worker(url, fresh_prefix, blobs, ledger_url):
            results = [await client.result(one, wait_s=BOUND_S) for one in ids]
    assert [result.value for result in results] == ["done"] * RUNS
    assert len(counted.made) == RUNS * CALLS
    assert set(counted.made.values()) == {1}
    assert all(names(log, fresh_prefix, one).count("OwnershipClaimed") == 2 for one in ids)
    log.close()


@pytest.mark.faults
async def test_a_worker_that_is_told_to_stop_moves_its_runs_and_ends_well(
    log_urls: Callable[[str], str], fresh_prefix: str, tmp_path: Path
) -> None:
    url, blobs = log_urls("sqlite"), tmp_path / "blobs"
    log = open_log(url)
    make_topics(log, Topics(fresh_prefix))
    client = Client(log, Topics(fresh_prefix))
    ids = [await client.submit("traveller", "book it", id=f"trip-{n}") for n in range(RUNS)]
    with ledger() as (counted, ledger_url):
        with worker(url, fresh_prefix, blobs, ledger_url) as first:
            await until_events(log, fresh_prefix, ids, "ToolIntent", RUNS)
            first.terminate()
            said, _ = await asyncio.to_thread(first.communicate, timeout=BOUND_S)
        assert first.returncode == 0, said
        assert [names(log, fresh_prefix, one)[-1] for one in ids] == ["OwnershipReleased"] * RUNS
        with worker(url, fresh_prefix, blobs, ledger_url):
            results = [await client.result(one, wait_s=BOUND_S) for one in ids]
    assert [result.value for result in results] == ["done"] * RUNS
    assert set(counted.made.values()) == {1}
    assert set(counted.asked.values()) == {1}, "nothing was in doubt"
    log.close()
