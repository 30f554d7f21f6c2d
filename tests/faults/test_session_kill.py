"""kill -9 of an agent at exact moments on a log on disk, then resumed: an effect once, or a person asked."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.ledger import ledger
from tests.support.session_worker import CALLS, MOMENTS, TRAJECTORY
from tests.support.writing import make_topics, on_log, read_accepted
from tracklog.infra.log.open import open_log
from tracklog.producers.answers import Answers
from tracklog.schemas.events import Escalated, ModelReplied, TaskEnded, ToolResult
from tracklog.schemas.topics import Topics
from tracklog.schemas.values import ResultStatus

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 60


def run_agent(*arguments: object) -> subprocess.CompletedProcess[str]:
    roles = ("schemas", "infra", "producers")
    path = os.pathsep.join([*(str(ROOT / role) for role in roles), str(ROOT)])
    command = [sys.executable, "-m", "tests.support.session_worker", *map(str, arguments)]
    return subprocess.run(
        command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=TIMEOUT_S
    )


@pytest.mark.faults
@pytest.mark.parametrize("moment", [2, 5, 8, 13, 14, 15, 20, 21, 22, 27, 28, 29, 32, MOMENTS])
async def test_an_agent_killed_at_any_moment_finishes_with_each_effect_once(
    moment: int, log_urls: Callable[[str], str], fresh_prefix: str, tmp_path: Path
) -> None:
    url, blobs = log_urls("sqlite"), tmp_path / "blobs"
    log = open_log(url)
    make_topics(log, Topics(fresh_prefix))
    log.close()
    with ledger() as (counted, ledger_url):
        killed = run_agent(url, fresh_prefix, blobs, ledger_url, moment)
        assert killed.returncode == -signal.SIGKILL, killed.stdout + killed.stderr
        resumed = run_agent(url, fresh_prefix, blobs, ledger_url, 0)
        asked = "a person" in resumed.stdout
        if asked:
            assert counted.made["c4"] <= 1
            async with on_log(url, fresh_prefix, create=False) as (log, _):
                await Answers(log, Topics(fresh_prefix)).settle(
                    TRAJECTORY, "c4", person="ada", happened=True, output="done by hand"
                )
            resumed = run_agent(url, fresh_prefix, blobs, ledger_url, 0)
    assert resumed.stdout.startswith("done"), resumed.stdout + resumed.stderr
    async with on_log(url, fresh_prefix, create=False) as (log, _):
        bodies = [event.body for event in read_accepted(log, TRAJECTORY, prefix=fresh_prefix)]
    results = {body.call_id: body for body in bodies if isinstance(body, ToolResult)}
    assert set(results) == set(CALLS)
    assert len([body for body in bodies if isinstance(body, ModelReplied)]) == len(CALLS) + 1
    assert len([body for body in bodies if isinstance(body, TaskEnded)]) == 1
    assert len([body for body in bodies if isinstance(body, Escalated)]) == asked
    assert counted.made["c2"] == 1
    assert counted.made["c3"] == (results["c3"].status is ResultStatus.OK)
    assert counted.made["c4"] == 1 or asked
    assert max(counted.made.values()) == 1
