"""Two processes of the API on one log, batches to them in turn, each killed between what it wrote and its answer."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest
from typer.testing import CliRunner

from tests.conftest import missing_service
from tests.support.replicas import BOUND_S, Front, check_once, record_run, replicas
from tests.support.worker_process import ROOT
from tracklog.consumers.cli.app import app
from tracklog.infra.log.open import open_log
from tracklog.schemas.events import OwnershipClaimed

EXAMPLE: Final = ROOT / "examples" / "ingest-typescript"
TYPESCRIPT: Final = "typescript@5.9.3"
COMPILER: Final = ROOT / ".tracklog" / "typescript"
TURNS: Final = 5
SOON_S: Final = 30.0


@pytest.fixture
def front(log_urls: Callable[[str], str], redis_db: str, tmp_path: Path) -> Iterator[Front]:
    with (
        replicas(log_urls("sqlite"), "tracklog", redis_db, tmp_path) as served,
        closing(Front(served, kill_at={1, 4})) as made,
    ):
        yield made


def run(tmp_path: Path, *arguments: str) -> str:
    """A command on the same log."""
    found = CliRunner(env={"TRACKLOG_HOME": str(tmp_path)}).invoke(
        app, ["--log", f"sqlite:{tmp_path / 'log.db'}", *arguments]
    )
    assert found.exit_code == 0, found.output
    return found.stdout


def test_each_event_is_in_once_whoever_dies_and_commands_read_the_run_as_any_other(
    front: Front, tmp_path: Path
) -> None:
    answers = record_run(front, "run-1", TURNS)
    # then both were killed, and the trajectory went from one to the other
    assert front.cut == 2
    with closing(open_log(f"sqlite:{tmp_path / 'log.db'}")) as log:
        events = check_once(log, "tracklog", "run-1", "ingest:local/ts", answers[-1]["next"])
    claims = [event for event in events if isinstance(event.body, OwnershipClaimed)]
    assert len(claims) > 2
    # and it is verified, shown and read again like any other
    assert run(tmp_path, "verify", "run-1")
    assert "search" in run(tmp_path, "show", "run-1")
    read = [
        json.loads(line) for line in run(tmp_path, "--json", "replay", "events", "--trajectory", "run-1").splitlines()
    ]
    assert [one["hash"] for one in read if one["seq"] == answers[-1]["seqs"][-1]] == [answers[-1]["hash"]]
    assert run(tmp_path, "replay", "trajectory", "run-1")


def test_the_client_in_typescript_records_a_run_and_sends_again_what_was_not_answered(
    front: Front, tmp_path: Path
) -> None:
    client = EXAMPLE / "tracklog.ts"
    assert len(client.read_text().splitlines()) <= 60
    done = subprocess.run(
        [*node(tmp_path), front.url, "planner-1"], capture_output=True, text=True, timeout=BOUND_S, check=False
    )
    assert (done.returncode, done.stdout) == (0, "recorded planner-1\n"), done.stderr
    assert front.cut == 2
    with closing(open_log(f"sqlite:{tmp_path / 'log.db'}")) as log:
        check_once(log, "tracklog", "planner-1", "ingest:local/planner", 2 + TURNS * 5 + 3)


def test_the_client_in_typescript_says_soon_that_no_server_is_there(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    done = subprocess.run(
        [*node(tmp_path), f"http://127.0.0.1:{port}", "planner-1"],
        capture_output=True,
        text=True,
        timeout=SOON_S,
        check=False,
    )
    assert done.returncode != 0
    assert f"no answer from http://127.0.0.1:{port} after 6 tries" in done.stderr


def node(folder: Path) -> list[str]:
    """How the example is run here: by a node that takes TypeScript, else compiled."""
    program = shutil.which("node")
    if program is None:
        missing_service("node is not installed")
    version = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    major, minor, *_ = (int(part) for part in version.strip().lstrip("v").split("."))
    if (major, minor) >= (22, 6):
        return [program, "--experimental-strip-types", "--no-warnings", str(EXAMPLE / "agent.ts")]
    build = folder / "build"
    command = [program, str(compiler()), "-p", str(EXAMPLE), "--outDir", str(build)]
    compiled = subprocess.run(command, capture_output=True, text=True, check=False)
    assert compiled.returncode == 0, compiled.stdout
    shutil.copy(EXAMPLE / "package.json", build)
    return [program, str(build / "agent.js")]


def compiler() -> Path:
    """TypeScript's, kept beside the jars of Kafka."""
    found = COMPILER / "node_modules" / "typescript" / "bin" / "tsc"
    if not found.exists():
        npm = shutil.which("npm")
        if npm is None:
            missing_service("node is older than 22.6, and there is no npm to get TypeScript's compiler")
        COMPILER.mkdir(parents=True, exist_ok=True)
        command = [npm, "install", "--no-save", "--no-audit", "--no-fund", "--prefix", str(COMPILER), TYPESCRIPT]
        got = subprocess.run(command, capture_output=True, text=True, timeout=BOUND_S * 3, check=False, env=os.environ)
        if got.returncode != 0:
            missing_service(f"TypeScript's compiler cannot be had: {got.stderr[-300:]}")
    return found
