"""`tracklog watch`: the table, and the events, each with the place to go on from."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tests.support.chains import Chain, append_all, run_of
from tracklog.consumers.cli.app import app
from tracklog.infra.log.open import open_log
from tracklog.schemas import events as ev

Tracklog = Callable[..., Result]


@pytest.fixture
def tracklog(tmp_path: Path) -> Tracklog:
    runner = CliRunner(env={"TRACKLOG_HOME": str(tmp_path / "data")})

    def run(*arguments: object, exit_code: int = 0) -> Result:
        result = runner.invoke(app, [f"--log=sqlite:{tmp_path / 'log.db'}", *map(str, arguments)])
        assert result.exit_code == exit_code, f"{arguments}: {result.output}\n{result.exception!r}"
        assert "Traceback" not in result.output
        return result

    run("topics", "apply")
    doubtful = run_of("doubtful", turns=1, tenant="north", ending=None)
    doubtful.add(ev.InDoubt(call_id="call-9", tried="no answer"))
    log = open_log(f"sqlite:{tmp_path / 'log.db'}")
    chains: list[Chain] = [run_of("done", turns=2), doubtful]
    append_all(log, "tracklog.events", [record for chain in chains for record in chain.records])
    log.close()
    return run


def test_the_table_says_who_runs_what_is_in_doubt_and_what_it_costs(tracklog: Tracklog) -> None:
    seen = json.loads(tracklog("watch", "--count", 1, "--json").stdout)

    assert seen["counts"]["all"] == 2
    assert [(one["trajectory_id"], one["call_id"]) for one in seen["doubted"]] == [("doubtful", "call-9")]
    assert seen["today"]["north|test-model"]["calls"] == 1
    assert [one["trajectory_id"] for one in seen["still"]] == ["doubtful"]
    assert seen["approvals"] is None
    line = tracklog("watch", "--count", 1).stdout
    assert "2 trajectories" in line
    assert "in doubt: doubtful/call-9" in line
    assert "today $0.0008" in line


def test_events_are_followed_and_the_stream_goes_on_behind_its_token(tracklog: Tracklog) -> None:
    given = ("watch", "--events", "--type", "ModelReplied", "--json")
    first = [json.loads(line) for line in tracklog(*given, "--from", "beginning", "-n", 2).stdout.splitlines()]
    rest = json.loads(tracklog(*given, "--after", first[1]["token"], "-n", 1).stdout)

    assert len({(one["trajectory_id"], one["seq"]) for one in (*first, rest)}) == 3
    told = tracklog("watch", "--events", "--from", "beginning", "-n", 9).stdout
    assert "ModelReplied" in told
    (intent,) = (line for line in told.splitlines() if "  ToolIntent  " in line)
    assert re.search(r"  doubtful  turn 1  ToolIntent  call-1  lookup\(\S+ 1}\) · opaque · recorded$", intent), intent


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("--type", "ToolIntent"), "--events"),
        (("--events", "--type", "ToolIntents"), "no event type"),
        (("--events", "--after", "x"), "no token"),
        (("--events", "--from", "end", "--after", "WzBd"), "both say where to begin"),
    ],
)
def test_what_cannot_be_watched_is_said(tracklog: Tracklog, given: tuple[str, ...], said: str) -> None:
    assert said in tracklog("watch", *given, exit_code=2).stderr
