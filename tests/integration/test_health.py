"""Roles in processes of their own, that hang: their liveness fails, and says where."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.standing import Installation
from tracklog.infra.stack.ports import free_ports

STALL_S = 1.5


@pytest.fixture
def here(redis_db: str, fresh_prefix: str, tmp_path: Path) -> Installation:
    return Installation(f"sqlite:{tmp_path / 'log.db'}", redis_db, fresh_prefix, tmp_path / "home")


def test_a_processor_that_hangs_fails_the_liveness_of_its_process_and_the_partition_is_named(
    here: Installation,
) -> None:
    here.run("submit", "clerk", "look", "--id", "trip-1")
    load = ("process", "hanging", "--load", "tests.support.standing_views:Hanging")
    with here.standing("worker", "tests.support.standing_views:clerk") as worker:
        worker.until("/readyz", 200)
        with here.standing(*load, loop__stall_timeout_s=STALL_S) as process:
            process.until("/healthz", 503)
            (problem,) = process.problems("/healthz")
            process.process.kill()
        assert worker.get("/healthz")[0] == 200
    assert problem.startswith("partition ")
    assert "taking in its records has not ended" in problem


def test_an_agent_that_blocks_its_worker_fails_its_liveness(here: Installation) -> None:
    here.run("submit", "blocker", "look", "--id", "trip-1")
    agent = "tests.support.standing_views:blocker"
    with here.standing("worker", agent, health__event_loop_stall_s=STALL_S) as worker:
        worker.until("/healthz", 503)
        (problem,) = worker.problems("/healthz")
        worker.process.kill()
    assert problem.startswith("the event loop has not turned for")
    assert "1 trajectories of partitions" in problem


def test_with_json_lines_every_line_of_a_role_is_an_object(here: Installation) -> None:
    with here.standing("serve", logging__format="json", api__port=free_ports(1)[0]) as serve:
        serve.until("/healthz", 200)
    lines = [json.loads(line) for line in serve.said.read_text().splitlines() if line != "stopped"]
    assert {line["role"] for line in lines} == {"serve"}
    assert any(line["message"].startswith("health and metrics at") for line in lines)
    assert all({"time", "level"} <= line.keys() for line in lines)
