"""The program itself, in processes of its own: how fast it starts, how it is stopped, what it leaves behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from time import monotonic

import pytest

from tracklog.infra.stack.process import wait_until
from tracklog.producers.data import shipped_file

MAIN = "from tracklog.consumers.cli import main; main()"
HELP_S_MAX = 0.3
HEAVY = ("confluent_kafka", "redis", "fastavro", "pydantic", "sqlite3", "obstore", "cel", "rich.markdown")
DEMO_CPU_S_MAX = 20
TIMEOUT_S = 60


def environment(home: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TRACKLOG_")}
    return {**kept, "TRACKLOG_HOME": str(home), "PYTHONPATH": os.pathsep.join(sys.path), "NO_COLOR": "1"}


def start(home: Path, *arguments: object, python: Sequence[str] = ()) -> subprocess.Popen[str]:
    command = [sys.executable, *python, "-c", MAIN, *map(str, arguments)]
    return subprocess.Popen(
        command, env=environment(home), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=home
    )


def tracklog(home: Path, *arguments: object, python: Sequence[str] = ()) -> tuple[int, str, str]:
    process = start(home, *arguments, python=python)
    out, err = process.communicate(timeout=TIMEOUT_S)
    return process.returncode, out, err


def test_help_is_there_at_once_and_loads_no_client(tmp_path: Path) -> None:
    code, out, err = tracklog(tmp_path, "--help", python=("-X", "importtime"))

    assert code == 0
    assert "Commands:" in out
    loaded = {line.rpartition("|")[2].strip() for line in err.splitlines() if line.startswith("import time:")}
    assert not {name for name in loaded if name.startswith(HEAVY)}


def test_help_takes_less_than_its_limit_of_processor_time(tmp_path: Path) -> None:
    """Of several starts the best, in processor time: a busy machine is not the program's fault."""
    best = TIMEOUT_S * 1.0
    for _ in range(5):
        before = os.times()
        assert tracklog(tmp_path, "--help")[0] == 0
        after = os.times()
        best = min(best, after.children_user + after.children_system - before.children_user - before.children_system)

    assert best < HELP_S_MAX


def test_no_argument_is_help_and_a_wrong_one_is_exit_code_2(tmp_path: Path) -> None:
    assert "Commands:" in "".join(tracklog(tmp_path)[1:])
    assert tracklog(tmp_path, "--json")[1].count("Commands:") == 1
    code, _, err = tracklog(tmp_path, "lsit")
    assert code == 2
    assert "lsit" in err
    assert tracklog(tmp_path, "list", "--nosuch")[0] == 2
    assert tracklog(tmp_path, "--version")[1].startswith("tracklog ")


def test_the_demo_finds_the_byte_that_it_flipped(tmp_path: Path) -> None:
    before = os.times()
    code, out, err = tracklog(tmp_path, "demo")
    after = os.times()

    assert code == 0, err
    assert "125 runs new" in out
    assert "records: all sound" in out
    assert "1 of them faulty" in out
    assert "and nothing else" in out
    assert after.children_user - before.children_user < DEMO_CPU_S_MAX
    assert not (tmp_path / "log.db").exists()


def test_a_reader_that_leaves_ends_the_program_in_silence(tmp_path: Path) -> None:
    imported(tmp_path)
    process = start(tmp_path, "replay", "events", "--format", "jsonl")
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.stdout.close()

    assert process.wait(timeout=TIMEOUT_S) == 141
    assert process.stderr.read() == ""
    process.stderr.close()


def redirected(home: Path, redirection: str, *arguments: str) -> tuple[int, str]:
    """The exit code of the program, not of what follows it in the shell, and standard error."""
    line = f'"$0" -c "$1" "${{@:2}}" {redirection}; exit ${{PIPESTATUS[0]}}'
    found = subprocess.run(
        ["bash", "-c", line, sys.executable, MAIN, *arguments],
        env=environment(home),
        capture_output=True,
        text=True,
        cwd=home,
        timeout=TIMEOUT_S,
    )
    return found.returncode, found.stderr


@pytest.mark.parametrize("arguments", [("verify", "--all", "--json"), ("list",), ("--help",)])
def test_output_that_is_lost_is_never_taken_for_faults(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    imported(tmp_path)

    assert redirected(tmp_path, "| true", *arguments) in [(141, ""), (0, "")], "0: all fitted before the reader left"
    for redirection, reason in ((">/dev/full", "No space left"), (">&-", "Bad file descriptor")):
        code, err = redirected(tmp_path, redirection, *arguments)
        assert code == 3
        assert "standard output cannot be written" in err
        assert reason in err
        assert "Traceback" not in err


def test_messages_that_are_lost_do_not_change_how_it_ends(tmp_path: Path) -> None:
    imported(tmp_path)

    for redirection in ("2>/dev/full", "2>&-", "2>&1 >&- | true"):
        assert redirected(tmp_path, redirection, "show", "nosuch") == (2, "")


def test_an_interrupt_of_an_import_says_what_is_durable_and_the_rest_goes_in_later(tmp_path: Path) -> None:
    source = tmp_path / "airline_runs.jsonl"
    source.write_bytes(shipped_file("airline_runs.jsonl"))
    process = start(tmp_path, "import", source)
    log = tmp_path / "log.db"
    assert wait_until(lambda: log.exists() and wal_bytes(log) > 100_000, TIMEOUT_S)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=TIMEOUT_S)

    assert process.returncode in (0, 130)
    assert "events durable" in out
    assert "Traceback" not in err
    if process.returncode == 130:
        assert "interrupted" in err

    code, out, _ = tracklog(tmp_path, "import", source, "--json")
    report = json.loads(out)
    assert code == 0
    assert report["new"] + report["resumed"] + report["already"] == 120
    found = json.loads(tracklog(tmp_path, "verify", "--all", "--json")[1])
    assert (found["trajectories"], found["faulty"]) == (120, 0)


def wal_bytes(log: Path) -> int:
    wal = log.with_name(log.name + "-wal")
    return wal.stat().st_size if wal.exists() else 0


def test_a_projection_stops_when_it_is_told_to(tmp_path: Path) -> None:
    imported(tmp_path)
    process = start(tmp_path, "process", "--json")
    assert process.stderr is not None
    assert "a member of" in process.stderr.readline()
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=TIMEOUT_S)

    assert process.returncode == 0, err
    assert "positions" in json.loads(out)


@pytest.mark.parametrize("command", [("verify", "--all"), ("list",), ("import", "."), ("topics", "verify")])
def test_an_absent_broker_is_named_within_ten_seconds(tmp_path: Path, command: tuple[str, ...]) -> None:
    started = monotonic()
    code, out, err = tracklog(tmp_path, "--log", "kafka://127.0.0.1:1", "--set", "log.connect_timeout_s=2", *command)

    assert monotonic() - started < 10
    assert (code, out) == (3, "")
    assert "127.0.0.1:1" in err
    assert "Traceback" not in err


def test_an_absent_redis_is_named(tmp_path: Path) -> None:
    imported(tmp_path)
    code, _, err = tracklog(tmp_path, "--redis", "redis://127.0.0.1:1", "list")

    assert code == 3
    assert "127.0.0.1:1" in err
    assert "Traceback" not in err


def imported(home: Path) -> None:
    lines = shipped_file("airline_runs.jsonl").splitlines(keepends=True)[:12]
    (home / "airline_runs.jsonl").write_bytes(b"".join(lines))
    code, _, err = tracklog(home, "import", home / "airline_runs.jsonl")
    assert code == 0, err
