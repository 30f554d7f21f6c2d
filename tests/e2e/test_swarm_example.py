"""examples/swarm in processes of its own: done, shown, replayed in one order; and the variant that never ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.zygote import ROOT

AGENTS: Final = tuple(f"examples.swarm.agents:{name}" for name in ("planner", "writer", "reviewer"))
WAIT_S: Final = 120


@pytest.fixture
def environment(tmp_path: Path, redis_db: str) -> dict[str, str]:
    roots = [str(ROOT / one) for one in ("schemas", "infra", "producers", "processors", "consumers", ".")]
    own = {name: value for name, value in os.environ.items() if not name.startswith("TRACKLOG_")}
    own |= {"PYTHONPATH": os.pathsep.join(roots), "TRACKLOG_HOME": str(tmp_path)}
    return own | {"TRACKLOG_LOG__URL": f"sqlite:{tmp_path / 'log.db'}", "TRACKLOG_REDIS__URL": redis_db}


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "tests.support.command_line", *map(str, arguments)]


def told(environment: dict[str, str], *arguments: object, code: int = 0, seed: str = "0") -> Any:
    done = subprocess.run(
        command("--json", *arguments),
        env={**environment, "PYTHONHASHSEED": seed},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)


@contextmanager
def standing(environment: dict[str, str], *commands: tuple[object, ...]) -> Iterator[None]:
    """Processes that run for as long as the block lasts."""
    going = [subprocess.Popen(command(*one), env=environment, cwd=ROOT, stderr=subprocess.DEVNULL) for one in commands]
    try:
        yield
    finally:
        for process in going:
            process.send_signal(signal.SIGTERM)
        for process in going:
            process.wait(WAIT_S)


@pytest.mark.faults
@pytest.mark.timeout(400)
def test_the_swarm_agrees_and_runs_again_in_one_order(environment: dict[str, str]) -> None:
    told(environment, "submit", "planner", "a haiku", "--id", "haiku")
    told(environment, "submit", "planner", "stuck", "--id", "mute")
    with standing(environment, ("worker", *AGENTS), ("route",)):
        result = told(environment, "result", "haiku", "--wait")
        assert result["output"]["verdict"] == "agreed after 2 rounds"
        # the other one: both of its children wait for each other, and it for one of them
        found: dict[str, Any] = {"deadlocks": []}
        while not found["deadlocks"]:
            done = subprocess.run(command("--json", "swarm", "mute"), env=environment, cwd=ROOT, capture_output=True)
            found = json.loads(done.stdout)
        assert found["deadlocks"] == [["mute.child-1", "mute.child-2"]]
        assert (found["held_up"], done.returncode) == (["mute"], 1)
        told(environment, "cancel", "mute")
        told(environment, "result", "mute.child-2", "--wait", code=1)
    # given what is recorded, then it runs again in one order, the same in any process
    agents = [word for one in AGENTS for word in ("--agent", one)]
    first, second = (told(environment, "replay", "swarm", "haiku", *agents, "--step", seed=seed) for seed in "12")
    assert (first["clean"], [one["trajectory_id"] for one in first["runs"]]) == (
        True,
        ["haiku", "haiku.child-1", "haiku.child-2"],
    )
    assert first == second
    lines = subprocess.run(
        command("replay", "events", "--swarm", "haiku", "--format", "jsonl"),
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=True,
    ).stdout.splitlines()
    events = [json.loads(line) for line in lines]
    assert [(one["trajectory_id"], one["seq"]) for one in events] == [
        (one["trajectory_id"], one["seq"]) for one in first["order"]
    ]
