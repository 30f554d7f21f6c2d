"""A worker that is killed with files: another one, with other directories, has them as they were."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.worker_agents import CALLS
from tests.support.worker_process import BOUND_S, Fleet
from tests.support.writing import make_topics
from tracklog.infra.log.open import open_log
from tracklog.producers.client import Client
from tracklog.schemas.events import ToolResult
from tracklog.schemas.topics import Topics

pytestmark = pytest.mark.faults


@pytest.mark.parametrize("failures_a_day", [0, 1e9])
async def test_the_files_of_a_killed_worker_are_there_in_the_next_one(
    failures_a_day: float, log_urls: Callable[[str], str], fresh_prefix: str, tmp_path: Path
) -> None:
    """Given a worker killed in the third call, with checkpoints or without, then no line is missing and none twice."""
    log, places = open_log(log_urls("sqlite")), tmp_path / "workspaces"
    make_topics(log, Topics(fresh_prefix))
    settings = {"checkpoints.workspaces": places, "checkpoints.failures_a_day": failures_a_day}
    fleet = Fleet(
        log, fresh_prefix, tmp_path / "blobs", agents=("tests.support.worker_agents:scribe",), settings=settings
    )
    client = Client(log, fleet.topics)
    await client.submit("scribe", "take notes", id="notes")
    with fleet.worker() as first:
        await fleet.until_events(["notes"], "ToolIntent", 3)
        os.kill(first.pid, signal.SIGKILL)
    left = [at for at in places.iterdir() if at.is_dir()]
    with fleet.worker() as second:
        result = await client.result("notes", wait_s=BOUND_S)
        second.terminate()
        second.wait(BOUND_S)

    assert result.value == "done"
    outputs = [event.body.output.text for event in fleet.events("notes") if isinstance(event.body, ToolResult)]
    assert outputs == ["".join(f"c{n}\n" for n in range(count)) for count in range(1, CALLS + 1)]
    assert ("CheckpointTaken" in fleet.names("notes")[:-3]) == bool(failures_a_day)
    assert len(left) == 1
    assert list(places.iterdir()) == [], "the next worker removes what a dead one left, and its own"
    log.close()
