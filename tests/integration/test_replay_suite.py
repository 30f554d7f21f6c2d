"""`tracklog replay suite` and the pytest plugin, over runs in files of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from typer.testing import CliRunner, Result

from tests.support.replaying import AGENT, MODULE, record
from tracklog.consumers.cli.app import app

Suite = Callable[..., Result]
RUNS = {"trip-1": "agent", "trip-2": "agent", "clerk-1": "other"}
PLUGIN = "tracklog.consumers.pytest_plugin"
TIMEOUT_S = 100


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with the agent's module."""
    (tmp_path / f"{MODULE}.py").write_text(AGENT)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    sys.modules.pop(MODULE, None)


@pytest.fixture
def suite(home: Path) -> Suite:
    def run(*words: str, exit_code: int = 0) -> Result:
        line = ["replay", "suite", *words]
        result = CliRunner(env={"TRACKLOG_HOME": str(home / "data")}).invoke(app, line)
        assert result.exit_code == exit_code, f"{line}: {result.output}\n{result.exception!r}"
        return result

    return run


def came(result: Result) -> dict[str, str]:
    return {one["trajectory_id"]: one["came"] for one in json.loads(result.stdout)["runs"]}


def test_runs_of_an_agent_that_is_gone_are_named_and_the_others_are_replayed(suite: Suite, home: Path) -> None:
    record(home / "data", RUNS)
    (home / "ids").write_text("# the archive\ntrip-1\nclerk-1\n\nnowhere\ntrip-1\ntrip-2\n")
    words = ("ids", "--agent", f"{MODULE}:agent", "--junit", "out.xml", "--jobs", "1")
    text = suite(*words, exit_code=1)
    assert "4 runs: 2 clean, 2 not replayed" in text.stdout
    assert "clerk-1: not replayed: trajectory 'clerk-1' is of agent 'clerk'; given is 'traveller'" in text.stderr
    assert "nowhere: not replayed: no trajectory 'nowhere' that was started" in text.stderr
    found = ET.parse(home / "out.xml").getroot()[0]
    assert (found.get("tests"), found.get("failures"), found.get("errors")) == ("4", "0", "2")


@pytest.mark.parametrize(("file", "exit_code"), [("nowhere/out.xml", 2), ("data", 2)])
def test_a_junit_file_that_cannot_be_written_is_said_before_anything_is_replayed(
    suite: Suite, home: Path, monkeypatch: pytest.MonkeyPatch, file: str, exit_code: int
) -> None:
    record(home / "data", {"trip-1": "agent"})
    (home / "ids").write_text("trip-1\n")
    monkeypatch.setattr("tracklog.consumers.cli.replay_suite.run_suite", lambda *_: pytest.fail("it was replayed"))
    told = suite("ids", "--agent", f"{MODULE}:agent", "--junit", file, exit_code=exit_code)
    assert f"{file} " in told.stderr
    assert not list(home.glob(".out.xml*"))


def test_a_run_that_diverges_ends_a_suite_with_1_and_is_a_failure_for_ci(suite: Suite, home: Path) -> None:
    record(home / "data", RUNS)
    words = ("--where", "true", "--agent", f"{MODULE}:strict", "--agent", f"{MODULE}:other", "--junit", "out.xml")
    text = suite(*words, exit_code=1).stdout
    assert "trip-1: diverges at turn 1" in text
    assert "deny for call 'c1': no bookings" in text
    assert "3 runs: 1 clean, 2 diverged" in text
    _, first, _ = ET.parse(home / "out.xml").getroot()[0]
    assert (first.get("name"), first[0].tag, first[0].get("type")) == ("trip-1", "failure", "harness")
    assert "deny for call 'c1'" in str(first[0].text)
    assert json.loads(suite("--where", "true", "--dry-run", "--max", "2", "--json").stdout)["dry_run"]


def test_an_agent_that_ends_its_process_hangs_or_raises_costs_its_own_run_only(suite: Suite, home: Path) -> None:
    """All runs are one process's, so those after the lost one are replayed by the next."""
    names = ("exits", "hangs", "fails")
    record(home / "data", {"a": "agent", "b": "exits", "c": "hangs", "d": "fails", "e": "agent"})
    (home / "ids").write_text("a\nb\nc\nd\ne\n")
    agents = [word for name in ("agent", *names) for word in ("--agent", f"{MODULE}:{name}")]
    found = suite("ids", *agents, "--jobs", "1", "--limit-s", "3", "--json", exit_code=1)
    assert came(found) == {"a": "clean", "b": "refused", "c": "limit", "d": "diverged", "e": "clean"}
    by_id = {one["trajectory_id"]: one for one in json.loads(found.stdout)["runs"]}
    assert "ended (exit code 7)" in by_id["b"]["problem"]
    assert by_id["c"]["problem"] == "no end within 3 s (--limit-s)"
    divergence = by_id["d"]["report"]["divergence"]
    assert (divergence["turn"], divergence["cause"]) == (1, "harness")
    assert f"LookupError: no rule, raised at {home / MODULE}.py:" in divergence["asked"]


def test_what_a_suite_is_given_wrong_is_said_before_anything_is_begun(suite: Suite, home: Path) -> None:
    (home / "empty").mkdir()
    (home / "bytes").write_bytes(b"\xff\xfe")
    for words, says in (
        ((), "takes a FILE or --where"),
        (("missing",), "missing cannot be read"),
        (("empty",), "empty has no recorded run"),
        (("bytes",), "neither a list of ids nor a log"),
        (("empty", "--agent", f"{MODULE}:gone"), "has no 'gone'"),
        (("empty", "--agent", f"{MODULE}:agent", "--agent", f"{MODULE}:brief"), "two agents are called 'traveller'"),
    ):
        assert says in suite(*words, exit_code=2).stderr


def test_a_folder_of_logs_is_a_suite_and_each_run_in_it_a_test(suite: Suite, home: Path) -> None:
    """Logs with their blobs beside them, as `tracklog pull` leaves them; a test of the project's own runs too."""
    record(home / "runs" / "first", {"trip-1": "agent", "bad": "fails"})
    record(home / "runs" / "second", {"clerk-1": "other"})
    (home / "test_own.py").write_text("def test_own():\n    assert True\n")
    assert "3 runs: 3 clean" in suite("runs", "--jobs", "1").stdout
    assert "would replay trip-1" in suite("runs/first/log.db", "--dry-run").stdout

    words = ["--tracklog-runs", "runs", "--tracklog-agent", f"{MODULE}:agent", "--tracklog-agent", f"{MODULE}:fails"]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TRACKLOG_HOME": str(home / "other")}
    command = [sys.executable, "-m", "pytest", "-p", PLUGIN, "-p", "no:cacheprovider", "-rA", *words]
    done = subprocess.run(command, cwd=home, env=environ, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "2 failed, 2 passed" in done.stdout
    assert "PASSED test_own.py::test_own" in done.stdout
    assert "PASSED runs/first/log.db::trip-1" in done.stdout
    assert "bad: diverges at turn 1" in done.stdout
    assert "'clerk-1' is of agent 'clerk'; given is 'traveller' and 'fails'" in done.stdout


def test_the_plugin_imports_nothing_of_ours_before_it_is_asked_to() -> None:
    program = f"import sys, {PLUGIN}; print(*(name for name in sys.modules if name.startswith('tracklog.')))"
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
    assert done.stdout.split() == ["tracklog.consumers", PLUGIN]
