"""Recorded runs as a regression suite: each replayed, some at a time in processes of their own.

A process reads the runs of a batch by one scan and says of each when it begins and how it came out. One that is lost,
or does not come to an end with a run within the limit, is replaced: it costs that run, not the others.
"""

from __future__ import annotations

import multiprocessing
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from enum import StrEnum
from multiprocessing.connection import Connection, wait
from typing import Final, NamedTuple

from tracklog.consumers.recorded_runs import RecordedRun
from tracklog.infra.clock import Clock
from tracklog.producers.again import Again
from tracklog.producers.replay import Report

__all__ = ["Begun", "Came", "Job", "Outcome", "run_suite"]

BATCH_RUNS_MAX: Final = 50
"""Runs that a process has in memory at a time."""
READ_TIMEOUT_S: Final = 600.0
"""How long a process may take to start, and to read a batch."""
END_TIMEOUT_S: Final = 5.0
"""How long a process may take to end when there is nothing left to do."""


class Came(StrEnum):
    """How a run came out."""

    CLEAN = "clean"
    DIVERGED = "diverged"
    REFUSED = "not replayed"
    LIMIT = "over the limit"


class Outcome(NamedTuple):
    """`report` is that of a run that was replayed, `problem` says why one was not."""

    run: RecordedRun
    came: Came
    report: Report | None = None
    problem: str = ""
    seconds: float = 0.0


class Job(NamedTuple):
    """How each run is replayed. `agents`: MODULE:AGENT each; `limit_s`: the longest that one run may take."""

    agents: tuple[str, ...] = ()
    again: tuple[Again, ...] = ()
    limit_s: float = 300.0


class Begun(NamedTuple):
    """Said by a process: the run with this number in the batch is replayed now."""

    number: int


Batch = Sequence[RecordedRun]
Told = Begun | Outcome | None
"""None: the batch is through."""


def run_suite(batches: Sequence[Batch], job: Job, jobs: int, clock: Clock, came: Callable[[Outcome], None]) -> None:
    """Replays all, at most `jobs` at a time; `came` is told of each run as it comes out. Blocks."""
    todo = deque(batches)
    with _processes(job, min(jobs, len(todo)), clock) as processes:
        while todo or any(process.busy for process in processes):
            for process in processes:
                if todo and not process.busy:
                    process.take(todo.popleft())
            busy = {process.pipe: process for process in processes if process.busy}
            bound_s = min(process.left_s for process in busy.values())
            for pipe in wait(list(busy), max(0.0, bound_s)):
                assert isinstance(pipe, Connection)
                busy[pipe].hear(came)
            for process in busy.values():
                if process.busy and process.left_s <= 0:
                    process.stop_run(came)


@contextmanager
def _processes(job: Job, many: int, clock: Clock) -> Iterator[list[_Process]]:
    processes = [_Process(job, clock) for _ in range(many)]
    try:
        yield processes
        for process in processes:
            process.end()
    finally:
        for process in processes:
            process.kill()


class _Process:
    """One process, or the one that has replaced it. `batch`: what it still has to do, its present run first."""

    def __init__(self, job: Job, clock: Clock) -> None:
        self.busy = False
        """Until it says that the batch is through."""
        self.batch: list[RecordedRun] = []
        self._job = job
        self._clock = clock
        self._begun = False
        self._start()

    @property
    def left_s(self) -> float:
        """How long it may still take."""
        limit_s = self._job.limit_s if self._begun else READ_TIMEOUT_S
        return self._since_s + limit_s - self._clock.monotonic_s()

    def take(self, batch: Batch) -> None:
        self.batch, self.busy = list(batch), True
        self._since_s, self._begun = self._clock.monotonic_s(), False
        self.pipe.send(self.batch)

    def hear(self, came: Callable[[Outcome], None]) -> None:
        """Takes in what it says."""
        try:
            told: Told = self.pipe.recv()
        except (EOFError, OSError):
            self.kill()
            self._give_up(
                came, Came.REFUSED, f"the process that replayed it ended (exit code {self._process.exitcode})"
            )
            return
        if isinstance(told, Begun):
            self._since_s, self._begun = self._clock.monotonic_s(), True
        elif isinstance(told, Outcome):
            self.batch.pop(0)
            self._since_s, self._begun = self._clock.monotonic_s(), False
            came(told)
        else:
            self.busy = False

    def stop_run(self, came: Callable[[Outcome], None]) -> None:
        """The present run, or reading the batch, has taken too long."""
        self.kill()
        if self._begun:
            self._give_up(came, Came.LIMIT, f"no end within {self._job.limit_s:g} s (--limit-s)")
        else:
            self._give_up(came, Came.REFUSED, f"it was not read within {READ_TIMEOUT_S:g} s")

    def end(self) -> None:
        with suppress(OSError):  # it has ended already
            self.pipe.send([])
        self._process.join(END_TIMEOUT_S)

    def kill(self) -> None:
        self._process.kill()
        self._process.join(END_TIMEOUT_S)
        self.pipe.close()

    def _give_up(self, came: Callable[[Outcome], None], how: Came, problem: str) -> None:
        """Goes on with the runs after the present one in a new process; with none when it had begun none."""
        lost, rest = (self.batch[:1], self.batch[1:]) if self._begun else (self.batch, [])
        for run in lost:
            came(Outcome(run, how, problem=problem, seconds=self._clock.monotonic_s() - self._since_s))
        self._start()
        self.batch, self.busy = [], False
        if rest:
            self.take(rest)

    def _start(self) -> None:
        from tracklog.consumers.suite_process import serve

        spawning = multiprocessing.get_context("spawn")
        self.pipe, theirs = spawning.Pipe()
        self._process = spawning.Process(target=serve, args=(theirs, self._job), daemon=True)
        self._process.start()
        theirs.close()
        self._since_s = self._clock.monotonic_s()
