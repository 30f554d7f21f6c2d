"""Kills an example agent with kill -9 right after it booked, and starts it again:

    python -m examples.kill9 openai_loop            # or openai_agents, langgraph_graph, pydantic_agent
    python -m examples.kill9 openai_loop --before   # the same agent as it was before it was made durable

The model is scripted and the booking desk is a small service, both in this process; the agent is a process of its
own. It is killed as soon as the desk has booked, so it never hears of it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from tests.support.ledger import Ledger, ledger
from tests.support.openai_server import Endpoint, asks_for, openai_server, says

TASK: Final = "Book a flight to Zürich."
SCRIPT: Final = (
    asks_for("call-1", "find_flights", to="Zürich"),
    asks_for("call-2", "book", flight="TL100"),
    says("TL100 to Zürich is booked."),
)
START_S: Final = 30.0
SHOWN: Final = "done"
"""What is said of every booking ends so: those that were made, and those whose key was known."""
When = Callable[[int, str], bool]
"""(number, what is seen) -> whether the process is killed now."""


class Stage:
    """A scripted model and a booking desk. What they see are moments, numbered from 1 for each process."""

    def __init__(self, endpoint: Endpoint, desk: Ledger, desk_url: str, home: Path) -> None:
        self.endpoint = endpoint
        self.desk = desk
        self.seen: list[str] = []
        self.environment: Final[Mapping[str, str]] = {
            "OPENAI_BASE_URL": endpoint.url,
            "OPENAI_API_KEY": "none",
            "DESK_URL": desk_url,
            "TRACKLOG_HOME": str(home),
        }
        self._kill: Callable[[], None] = lambda: None
        self._when: When = never
        self._ready = threading.Event()
        self._lock = threading.Lock()
        endpoint.moment = desk.moment = self._moment

    @contextmanager
    def process(self, pid: int, when: When, after_s: float = 0.0) -> Iterator[None]:
        """Around the life of a process; it is killed so long after the first moment that `when` says."""

        def kill() -> None:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

        timer = threading.Timer(after_s, kill)
        self.seen, self._when, self._kill = [], when, timer.start if after_s else kill
        self._ready.set()
        yield
        timer.cancel()
        self._ready.clear()

    def _moment(self, what: str) -> None:
        self._ready.wait(START_S)
        with self._lock:
            self.seen.append(what)
            if self._when(len(self.seen), what):
                self._when = never
                self._kill()


@contextmanager
def stage(home: Path, *script: Mapping[str, Any]) -> Iterator[Stage]:
    with openai_server(*(script or SCRIPT)) as endpoint, ledger() as (desk, desk_url):
        yield Stage(endpoint, desk, desk_url, home)


def start(name: str, form: str, on: Stage) -> subprocess.Popen[str]:
    """A process of the example, as a person would start it."""
    command = [sys.executable, "-m", f"examples.{name}.{form}", TASK]
    return subprocess.Popen(command, env={**os.environ, **on.environment}, stdout=subprocess.PIPE, text=True)


def once_booked(_: int, what: str) -> bool:
    return what.endswith("is done")


def never(_: int, what: str) -> bool:
    return False


def main(name: str, form: str) -> None:
    with tempfile.TemporaryDirectory() as home, stage(Path(home)) as on:
        for number in (1, 2):
            print(f"start {number}")
            agent = start(name, form, on)
            with on.process(agent.pid, once_booked if number == 1 else never):
                said, _ = agent.communicate()
            for what in on.seen:
                if what.endswith(SHOWN) or "asked for reply" in what:
                    print("  " + what.replace("done", "booked"))
            print("  kill -9" if agent.returncode == -signal.SIGKILL else f"  the agent says: {said.strip()}")
        print(f"bookings of TL100: {on.desk.made['TL100']}")


if __name__ == "__main__":
    main(sys.argv[1], "before" if "--before" in sys.argv else "durable")
