"""`tracklog replay trajectory`, as a person types it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tests.support.replaying import AGENT, record
from tracklog.consumers.cli.app import app

Tracklog = Callable[..., Result]


@pytest.fixture
def tracklog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tracklog]:
    """One run of the agent is recorded."""
    (tmp_path / "replayed_agent.py").write_text(AGENT)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    environ = {"TRACKLOG_HOME": str(tmp_path / "data")}
    record(tmp_path / "data", {"trip": "agent"})
    runner = CliRunner(env=environ)

    def run(trajectory_id: str, agent: str = "", *more: str, exit_code: int = 0) -> Result:
        line = ["replay", "trajectory", trajectory_id, *(["--agent", agent] if agent else []), *more]
        result = runner.invoke(app, line)
        assert result.exit_code == exit_code, f"{line}: {result.output}\n{result.exception!r}"
        return result

    yield run
    del sys.modules["replayed_agent"]


def test_the_agent_that_recorded_a_run_replays_it_clean_and_calls_nothing(tracklog: Tracklog) -> None:
    report = json.loads(tracklog("trip", "replayed_agent:agent", "--json").stdout)
    assert (report["clean"], report["turns"], report["ended"], report["divergence"]) == (True, 2, True, None)
    assert "trip: clean (2 turns" in tracklog("trip", "replayed_agent:agent").stdout
    assert sys.modules["replayed_agent"].MADE == ["train"]


def test_without_an_agent_the_record_says_what_it_was(tracklog: Tracklog) -> None:
    assert "trip: clean (2 turns" in tracklog("trip").stdout
    assert "trip: clean" in tracklog("trip", "replayed_agent:agent", "--again", "model").stdout
    found = json.loads(tracklog("trip", "replayed_agent:moody", "--again", "model", "--json", exit_code=1).stdout)
    assert (found["divergence"]["turn"], found["divergence"]["cause"]) == (2, "model")


@pytest.mark.parametrize(
    ("agent", "turn", "asked"),
    [
        ("clocked", 1, "the clock (time.time) outside the session, at "),
        ("strict", 1, "deny for call 'c1': no bookings"),
        ("brief", 0, "another prompt"),
    ],
)
def test_a_changed_agent_ends_with_1_and_says_where_and_why(
    tracklog: Tracklog, agent: str, turn: int, asked: str
) -> None:
    found = json.loads(tracklog("trip", f"replayed_agent:{agent}", "--json", exit_code=1).stdout)["divergence"]
    assert (found["turn"], found["cause"]) == (turn, "environment" if agent == "clocked" else "harness")
    assert asked in found["asked"]
    text = tracklog("trip", f"replayed_agent:{agent}", exit_code=1).stdout
    assert f"diverges at turn {turn}" in text
    assert asked in text


@pytest.mark.parametrize(
    ("trajectory_id", "agent", "says"),
    [
        ("trip", "replayed_agent:other", "is of agent 'traveller'; given is 'clerk'"),
        ("trip", "replayed_agent:gone", "has no 'gone'"),
        ("trip", "no_such_module:agent", "there is no module 'no_such_module'"),
        ("nowhere", "replayed_agent:agent", "no trajectory 'nowhere'"),
    ],
)
def test_what_cannot_be_replayed_is_refused_with_the_reason(
    tracklog: Tracklog, trajectory_id: str, agent: str, says: str
) -> None:
    assert says in tracklog(trajectory_id, agent, exit_code=2).stderr
