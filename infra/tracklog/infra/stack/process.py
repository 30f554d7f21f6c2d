"""One server process: started, watched, frozen, stopped by an identity that never names a stranger."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import sleep
from typing import Final, Literal, Self

from tracklog.infra.clock import SystemClock
from tracklog.schemas.errors import StackError

Lifetime = Literal["parent", "shared", "detached"]
"""`parent`: ends with the process that started it, even a killed one. `shared`: ends when nobody holds a shared
lock on `ServerProcess.users_path` any more. `detached`: stays until stopped."""

POLL_S: Final = 0.02
STOP_GRACE_S: Final = 10.0
KILL_BOUND_S: Final = 10.0
STOP_BOUND_S: Final = 5.0
LOG_TAIL_LINES: Final = 12

_detached: Final[list[subprocess.Popen[bytes]]] = []
"""Handles of detached children, so that one which ends while we live is reaped, not left a zombie."""


def wait_until(condition: Callable[[], bool], timeout_s: float) -> bool:
    """Polls until the condition holds; False when it did not within the bound."""
    clock = SystemClock()
    deadline = clock.monotonic_s() + timeout_s
    while not condition():
        if clock.monotonic_s() >= deadline:
            return False
        sleep(POLL_S)
    return True


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Within it, a disk that is full or cannot be written is a StackError that names the file."""
    try:
        yield
    except OSError as error:
        raise StackError(
            f"{error.filename or path} cannot be written: {error.strerror or error}",
            hint="free some space, or set `home` to a folder that can be written",
        ) from error


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """A pid together with when that process started: pids are used again, the pair is not."""

    pid: int
    started: str

    @classmethod
    def of(cls, pid: int) -> Self | None:
        """The identity of the living process with this pid; None when there is none, or only a zombie."""
        started = _started_linux(pid) if sys.platform == "linux" else _started_posix(pid)
        return None if started is None else cls(pid, started)

    def alive(self) -> bool:
        return ProcessIdentity.of(self.pid) == self

    def signal(self, number: signal.Signals) -> bool:
        """Sends a signal to this very process; False when it has ended already."""
        if not self.alive():
            return False
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            return False
        return True


def _started_linux(pid: int) -> str | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
        boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = stat.rpartition(")")[2].split()  # the command name before it may hold spaces and brackets
    state, start_ticks = fields[0], fields[19]
    return None if state in ("Z", "X") else f"{boot_id}/{start_ticks}"


def _ps(pid: int) -> str:
    """`STATE START_TIME` of a process, empty when there is none."""
    answer = subprocess.run(
        ["ps", "-o", "stat=,lstart=", "-p", str(pid)],
        capture_output=True,
        text=True,
        timeout=10,
        env={"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"},
        check=False,
    )
    return answer.stdout.strip()


def _started_posix(pid: int) -> str | None:
    state, _, started = _ps(pid).partition(" ")
    return None if not started or state.startswith("Z") else started.strip()


def _all_stopped(pid: int) -> bool:
    """Whether every thread of the process is stopped; each stops only when it is next scheduled."""
    if sys.platform != "linux":
        return _ps(pid).startswith("T")
    try:
        stats = [thread.read_text() for thread in Path(f"/proc/{pid}/task").glob("*/stat")]
    except (FileNotFoundError, ProcessLookupError):
        return False  # a thread ended while we looked: look again
    return bool(stats) and all(stat.rpartition(")")[2].split()[0] == "T" for stat in stats)


class ServerProcess:
    """A server with a log file and a pid file in `home`; another process finds it again by the pid file."""

    def __init__(self, name: str, home: Path) -> None:
        self.name = name
        self.home = home
        self.log_path = home / f"{name}.log"
        self.users_path = home / f"{name}.users"
        self._pid_path = home / f"{name}.pid"
        self._watchdog: subprocess.Popen[bytes] | None = None
        self._identity = self._recorded()

    def _recorded(self) -> ProcessIdentity | None:
        try:
            record = json.loads(self._pid_path.read_text())
            return ProcessIdentity(int(record["pid"]), str(record["started"]))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (ValueError, KeyError, TypeError):
            return None  # half-written by a crash: nothing may be killed on its word

    @property
    def pid(self) -> int | None:
        """None when it does not run."""
        identity = self._identity
        return identity.pid if identity is not None and identity.alive() else None

    @property
    def running(self) -> bool:
        return self.pid is not None

    def spawn(self, argv: Sequence[str], *, lifetime: Lifetime, env: Mapping[str, str] | None = None) -> None:
        """Starts the server, with this process's environment unless given one. It may not answer yet."""
        if self.running:
            raise StackError(f"{self.name} runs already as process {self.pid}", hint="stop it first")
        with writing(self.home):
            self._release()
            self.home.mkdir(parents=True, exist_ok=True)
        pid = self._spawn_free(argv, env) if lifetime == "detached" else self._spawn_watched(argv, env, lifetime)
        self._identity = ProcessIdentity.of(pid)
        if self._identity is not None:
            self._record_or_kill(self._identity)

    def _spawn_watched(self, argv: Sequence[str], env: Mapping[str, str] | None, lifetime: Lifetime) -> int:
        shared = lifetime == "shared"
        program = [sys.executable, "-I", "-S", str(Path(__file__).with_name("watchdog.py"))]
        watchdog = subprocess.Popen(
            [*program, str(self.log_path), str(self.users_path) if shared else "-", *argv],
            stdin=subprocess.DEVNULL if shared else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=env,
            start_new_session=True,
        )
        assert watchdog.stdout is not None
        assert watchdog.stderr is not None
        line = watchdog.stdout.readline()
        if not line:
            _, said = watchdog.communicate(timeout=KILL_BOUND_S)
            reason = said.decode(errors="replace").strip().splitlines()[-1:]
            raise StackError(f"{self.name} could not be started: {' '.join(reason)}")
        if shared:
            watchdog.stdout.close()
            watchdog.stderr.close()
            _detached.append(watchdog)
        else:
            self._watchdog = watchdog
        return int(line)

    def _spawn_free(self, argv: Sequence[str], env: Mapping[str, str] | None) -> int:
        try:
            with self.log_path.open("ab") as log:
                child = subprocess.Popen(
                    argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env, start_new_session=True
                )
        except OSError as error:
            raise StackError(f"{self.name} could not be started: {error}") from error
        _detached.append(child)
        return child.pid

    def _record_or_kill(self, identity: ProcessIdentity) -> None:
        """A server that nobody could find again must not stay."""
        try:
            with writing(self._pid_path):
                self._record(identity)
        except StackError:
            identity.signal(signal.SIGKILL)
            raise

    def _record(self, identity: ProcessIdentity) -> None:
        partial = self._pid_path.with_suffix(".pid.partial")
        partial.write_text(json.dumps({"pid": identity.pid, "started": identity.started}))
        partial.replace(self._pid_path)

    def freeze(self) -> None:
        """SIGSTOP: it keeps its sockets and answers nothing. Returns once every thread has stopped."""
        identity = self._must_signal(signal.SIGSTOP)
        if not wait_until(lambda: _all_stopped(identity.pid), STOP_BOUND_S):
            raise StackError(f"{self.name} (process {identity.pid}) did not stop after SIGSTOP")

    def thaw(self) -> None:
        self._must_signal(signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL, then waits until the process is gone. Fine when it does not run."""
        if self._identity is not None:
            self._identity.signal(signal.SIGKILL)
            self._await_end(self._identity)
        self._release()

    def stop(self, grace_s: float = STOP_GRACE_S) -> None:
        """SIGTERM, and SIGKILL when that took too long. Fine when it does not run."""
        if self._identity is not None and self._identity.signal(signal.SIGTERM):
            self._identity.signal(signal.SIGCONT)  # a frozen process takes the SIGTERM only once it is woken
            identity = self._identity
            wait_until(lambda: not identity.alive(), grace_s)
        self.kill()

    def log_tail(self, lines: int = LOG_TAIL_LINES) -> str:
        """The last lines that the server wrote, for an error message."""
        try:
            text = self.log_path.read_text(errors="replace")
        except FileNotFoundError:
            return ""
        return "\n".join(text.splitlines()[-lines:])

    def _must_signal(self, number: signal.Signals) -> ProcessIdentity:
        if self._identity is None or not self._identity.signal(number):
            raise StackError(f"{self.name} does not run, so {number.name} cannot be sent to it")
        return self._identity

    def _await_end(self, identity: ProcessIdentity) -> None:
        if not wait_until(lambda: not identity.alive(), KILL_BOUND_S):
            raise StackError(f"{self.name} (process {identity.pid}) did not end after SIGKILL")

    def _release(self) -> None:
        """Lets go of what belonged to a process that has ended: its watchdog and its pid file."""
        if self._watchdog is not None:
            self._watchdog.communicate(timeout=KILL_BOUND_S)
            self._watchdog = None
        for child in [child for child in _detached if child.poll() is not None]:
            _detached.remove(child)
        self._pid_path.unlink(missing_ok=True)
        self._identity = None
