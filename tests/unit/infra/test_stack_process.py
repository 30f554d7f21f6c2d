"""Starting and ending processes: the right one, surely, and never a stranger."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tracklog.infra.stack.embedded import embedded_redis
from tracklog.infra.stack.process import Lifetime, ProcessIdentity, ServerProcess, wait_until
from tracklog.schemas.errors import StackError

WAITS = (sys.executable, "-c", "print('up', flush=True); import signal; signal.pause()")
IGNORES_SIGTERM = (
    sys.executable,
    "-c",
    "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True)\nwhile True: signal.pause()",
)
ENDS = (sys.executable, "-c", "print('no such setting'); raise SystemExit(3)")
LIFETIMES = pytest.mark.parametrize("lifetime", ["parent", "detached"])


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(WAITS, stdout=subprocess.DEVNULL)
    yield process
    process.kill()
    process.wait()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    process = ServerProcess("server", tmp_path / "home")
    yield process
    process.kill()


def started(server: ServerProcess, argv: tuple[str, ...], lifetime: Lifetime) -> int:
    server.spawn(argv, lifetime=lifetime)
    assert wait_until(lambda: "up" in server.log_tail(), 10)
    assert server.pid is not None
    return server.pid


def test_a_process_is_the_pid_and_when_it_started(stranger: subprocess.Popen[bytes]) -> None:
    identity = ProcessIdentity.of(stranger.pid)
    assert identity is not None
    assert identity.alive()
    assert not ProcessIdentity(stranger.pid, "some other start").alive()


def test_a_zombie_has_ended(stranger: subprocess.Popen[bytes]) -> None:
    identity = ProcessIdentity.of(stranger.pid)
    assert identity is not None
    os.kill(stranger.pid, signal.SIGKILL)  # nobody waits for it, so it stays in the process table
    assert wait_until(lambda: not identity.alive(), 5)
    assert not identity.signal(signal.SIGTERM)


def test_a_stale_pid_file_never_ends_a_stranger(stranger: subprocess.Popen[bytes], tmp_path: Path) -> None:
    tmp_path.joinpath("server.pid").write_text(json.dumps({"pid": stranger.pid, "started": "before a reboot"}))

    found = ServerProcess("server", tmp_path)
    assert not found.running
    found.stop()

    assert stranger.poll() is None
    assert not tmp_path.joinpath("server.pid").exists()


@pytest.mark.parametrize("content", ["", "{", '{"pid": "x", "started": "y"}', "[]", '{"pid": 1}'])
def test_a_half_written_pid_file_names_nobody(tmp_path: Path, content: str) -> None:
    tmp_path.joinpath("server.pid").write_text(content)
    assert not ServerProcess("server", tmp_path).running


@LIFETIMES
def test_another_process_finds_and_stops_it_by_its_pid_file(server: ServerProcess, lifetime: Lifetime) -> None:
    pid = started(server, WAITS, lifetime)

    other = ServerProcess("server", server.home)
    assert other.pid == pid
    other.stop()

    assert not server.running


@LIFETIMES
def test_one_that_ignores_sigterm_is_killed_after_the_grace(server: ServerProcess, lifetime: Lifetime) -> None:
    started(server, IGNORES_SIGTERM, lifetime)
    server.stop(grace_s=0.2)
    assert not server.running


@LIFETIMES
def test_a_frozen_one_can_be_stopped(server: ServerProcess, lifetime: Lifetime) -> None:
    started(server, WAITS, lifetime)
    server.freeze()
    assert server.running
    server.stop(grace_s=5)
    assert not server.running


@LIFETIMES
def test_it_can_be_started_again_after_it_was_killed_but_not_while_it_runs(
    server: ServerProcess, lifetime: Lifetime
) -> None:
    first = started(server, WAITS, lifetime)
    with pytest.raises(StackError, match=f"runs already as process {first}"):
        server.spawn(WAITS, lifetime=lifetime)
    server.kill()
    assert started(server, WAITS, lifetime) != first


@LIFETIMES
def test_one_that_ends_at_once_leaves_its_last_words(server: ServerProcess, lifetime: Lifetime) -> None:
    server.spawn(ENDS, lifetime=lifetime)
    assert wait_until(lambda: not server.running, 10)
    assert "no such setting" in server.log_tail()


@LIFETIMES
def test_a_missing_executable_is_named(server: ServerProcess, lifetime: Lifetime) -> None:
    with pytest.raises(StackError, match="no-such-server"):
        server.spawn(["/nowhere/no-such-server"], lifetime=lifetime)


def test_signals_to_one_that_does_not_run_are_an_error_and_stopping_it_is_not(server: ServerProcess) -> None:
    server.stop()
    server.kill()
    with pytest.raises(StackError, match="does not run"):
        server.freeze()


def test_waiting_has_a_bound() -> None:
    assert not wait_until(lambda: False, 0.05)
    assert wait_until(lambda: True, 0.0)


def test_what_cannot_be_written_is_an_error_that_names_it_and_leaves_no_server(tmp_path: Path) -> None:
    server = ServerProcess("server", tmp_path / "home")
    (tmp_path / "home" / "server.pid.partial").mkdir(parents=True)

    with pytest.raises(StackError, match=r"server\.pid\.partial cannot be written: Is a directory"):
        server.spawn(WAITS, lifetime="parent")

    assert wait_until(lambda: not server.running, 5)
    server.kill()


def test_a_home_that_cannot_be_written_is_named_by_the_embedded_redis(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StackError, match=r"file.* cannot be written"), embedded_redis(tmp_path / "file" / "redis"):
        pass
