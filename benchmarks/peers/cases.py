"""What is done to each peer, and what came of it."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from benchmarks.peers.stopping import POINTS
from tests.support.ledger import all_effects

STOPS: Final = {"SIGKILL": signal.SIGKILL, "SIGSTOP": signal.SIGSTOP}
ROOT: Final = Path(__file__).resolve().parents[2]
END_S_MAX: Final = 300.0
AWAKE_S: Final = 5.0
"""What a woken process has to do what it still means to do."""


@dataclass(frozen=True)
class Case:
    """`tool`: what the service that makes the effect gives: "key", "probe" or "nothing"."""

    tool: str
    stop: str
    point: str

    @property
    def name(self) -> str:
        return f"{self.tool}-{self.stop}-{self.point}".lower().replace(".", "-")


def cases(tools: Sequence[str]) -> list[Case]:
    return [Case(tool, stop, point) for tool in tools for stop in STOPS for point in POINTS]


class Peer(Protocol):
    title: str
    tools: Sequence[str]
    at_once: int

    def run(self, case: Case, folder: Path, ledger_url: str) -> str:
        """Stops the agent at its point, has another one finish, wakes the first; what the other came to."""


def start(command: Sequence[str], said: Path) -> subprocess.Popen[bytes]:
    with said.open("ab") as out:
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=out, stderr=out)


def wait_stopped(process: subprocess.Popen[bytes], said: Path) -> None:
    """Until it has killed or frozen itself. Raises RuntimeError when it ended in another way."""
    _, status = os.waitpid(process.pid, os.WUNTRACED)
    if os.WIFSTOPPED(status):
        return
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != -signal.SIGKILL:
        raise RuntimeError(f"the agent ended with {process.returncode}:\n{said.read_text()[-2000:]}")


def wake(process: subprocess.Popen[bytes]) -> None:
    """Lets one that is frozen go on, and ends it when it was awake for long enough."""
    if process.returncode is None:
        process.send_signal(signal.SIGCONT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(AWAKE_S)
        process.kill()
        process.wait()


def effects(ledger_url: str, name: str) -> int:
    return all_effects(ledger_url).get(name, 0)
