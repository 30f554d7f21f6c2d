"""Examples in processes that are killed and started again until they are done."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from examples.kill9 import Stage, When, never, stage
from tests.support.openai_server import asks_for, says
from tests.support.writing import read_accepted
from tests.support.zygote import Zygote, zygote
from tracklog.infra.log.open import open_log
from tracklog.schemas.events import ModelReplied

FRAMEWORKS = ("openai_loop", "openai_agents", "langgraph_graph", "pydantic_agent")
TASK = "Book three flights to Zürich."
ANSWER = "All three are booked."
LATER = (
    "openai.resources.chat.completions",
    "tracklog.infra.log.sqlite",
    "tracklog.producers.library",
    "tracklog.producers.wrapped_openai",
)
FLIGHTS = ("TL100", "TL200", "TL300")


def together(*replies: Mapping[str, Any]) -> dict[str, Any]:
    return {**replies[0], "tool_calls": [call for reply in replies for call in reply["tool_calls"]]}


SCRIPT = (
    asks_for("call-1", "find_flights", to="Zürich"),
    together(asks_for("call-2", "book", flight="TL100"), asks_for("call-3", "book", flight="TL200")),
    asks_for("call-4", "book", flight="TL300"),
    says(ANSWER),
)


class Run:
    """One trajectory of an example, on a stage of its own."""

    def __init__(self, name: str, processes: Zygote, on: Stage, home: Path) -> None:
        self._name = name
        self._processes = processes
        self._home = home
        self.on = on

    def life(self, when: When = never, *, after_s: float = 0.0, form: str = "durable") -> bool:
        """One process, killed so long after a moment; whether it came to its end.

        It asks the model for nothing that is recorded, and for nothing twice.
        """
        recorded, asked = self._replies(), len(self.on.endpoint.bodies)
        module = f"examples.{self._name}.{form}"
        pid = self._processes.start(module, TASK, self.on.environment, self._home / "answer")
        with self.on.process(pid, when, after_s):
            status = self._processes.wait()
        assert status in (0, -signal.SIGKILL)
        numbers = [turn_of(body) for body in self.on.endpoint.bodies[asked:]]
        assert numbers == list(range(recorded, recorded + len(numbers))), f"{recorded} replies were recorded"
        return status == 0

    def without_session(self) -> str:
        """What the agent says that is given its tools without a session."""
        pid = self._processes.start(
            "tests.support.outside_session", self._name, self.on.environment, self._home / "answer"
        )
        with self.on.process(pid, never):
            assert self._processes.wait() == 0
        return self.answer

    @property
    def answer(self) -> str:
        return (self._home / "answer").read_text()

    def _replies(self) -> int:
        """Recorded so far."""
        path = self._home / "log.db"
        if not path.exists():
            return 0
        log = open_log(f"sqlite:{path}")
        try:
            return sum(isinstance(event.body, ModelReplied) for event in read_accepted(log, "trip-1"))
        finally:
            log.close()


@contextmanager
def example_processes() -> Iterator[Zygote]:
    """What starts them; everything that an example imports later is imported before too."""
    with zygote([*(f"examples.{name}.durable" for name in FRAMEWORKS), *LATER]) as made:
        yield made


@contextmanager
def run_of(name: str, processes: Zygote, home: Path) -> Iterator[Run]:
    with stage(home, *SCRIPT) as on:
        yield Run(name, processes, on, home)


def turn_of(body: Mapping[str, Any]) -> int:
    return sum(message["role"] == "assistant" for message in body["messages"])


def lives_until_done(run: Run, moments: Sequence[When]) -> int:
    """Kills the process of each life at its moment; how many of them were killed."""
    return sum(not run.life(when) for when in (*moments, never))


def check_booked_once(run: Run) -> None:
    assert run.answer == ANSWER
    assert run.on.desk.made == dict.fromkeys(FLIGHTS, 1)


def seen(words: str) -> When:
    """The moment at which this is seen."""
    return lambda _, what: what == words


def numbered(number: int) -> When:
    return lambda given, _: given == number
