"""The crash matrix through workers: one is killed, or frozen, at the point of each case, and another one takes over.

A few workers share all cases; one that is killed is replaced, one that is frozen too, and is woken when the case that
froze it has come to its end in another. Judged by the rules of `crash_matrix`.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from tests.support.crash_matrix import ROOT, Case, judge
from tests.support.following import Following
from tests.support.ledger import all_effects
from tests.support.matrix_member import Membership
from tests.support.points import Armed
from tests.support.writing import make_topics
from tracklog.infra.clock import SystemClock
from tracklog.infra.log.port import Log
from tracklog.producers.client import Client
from tracklog.schemas.codec import Event
from tracklog.schemas.events import OwnershipReleased
from tracklog.schemas.topics import Topics

WORKERS = 3
PARTITIONS = 12
QUIET_S_MAX = 120.0
LOOK_S = 0.1
SETTLED_S = 1.0
AWAKE_S = 3.0
"""What a woken worker has to do what it still means to do."""


@dataclass
class Fired:
    """What became of the cases: those whose worker stopped at their point, and how each ended."""

    ended: dict[str, str] = field(default_factory=dict)
    stops: int = 0
    never: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


@dataclass
class Frozen:
    """A worker that stopped at the point of one of these cases. `woken_s`: when it was let go on."""

    process: subprocess.Popen[str]
    cases: set[str]
    woken_s: float | None = None


class WorkerMatrix:
    """`stop`: SIGKILL or SIGSTOP."""

    def __init__(self, log: Log, prefix: str, folder: Path, ledger_url: str, cases: Sequence[Case], stop: int) -> None:
        self._log = log
        self._prefix = prefix
        self._cases = {case.trajectory_id: case for case in cases}
        self._stop = stop
        self._passed = folder / f"{prefix}.passed"
        self._said = (folder / f"{prefix}.said").open("w+")
        armed = {case.trajectory_id: Armed(case.point, case.occurrence, case.pause_s, stop) for case in cases}
        self._job = Membership(log.url, prefix, str(folder / "blobs"), ledger_url, str(self._passed), armed)
        self._running: list[subprocess.Popen[str]] = []
        self._frozen: list[Frozen] = []
        self._fired = Fired()
        self._known: set[str] = set()
        self._before: dict[str, list[Event]] = {}
        self._clock = SystemClock()

    async def run(self) -> Fired:
        self._passed.mkdir()
        make_topics(self._log, Topics(self._prefix), PARTITIONS)
        client = Client(self._log, Topics(self._prefix))
        try:
            self._running = [self._start() for _ in range(WORKERS)]
            for trajectory_id in self._cases:
                await client.submit(trajectory_id, "work", id=trajectory_id)
            with Following(self._log, Topics(self._prefix).events) as following:
                await self._until_over(following)
                while await asyncio.to_thread(following.poll, SETTLED_S):
                    pass
            self._judge(following)
        finally:
            for process in [*self._running, *(one.process for one in self._frozen)]:
                process.kill()
                process.wait()
            self._said.close()
        return self._fired

    async def _until_over(self, following: Following) -> None:
        """Until all cases have ended, and all that were frozen have woken."""
        moved_s = self._clock.monotonic_s()
        while len(self._fired.ended) < len(self._cases) or self._frozen:
            accepted = await asyncio.to_thread(following.poll, LOOK_S)
            for event in accepted:
                self._note_end(event, following)
            self._replace_stopped()
            self._wake(following)
            moved_s = self._clock.monotonic_s() if accepted else moved_s
            if self._clock.monotonic_s() - moved_s > QUIET_S_MAX:
                left = sorted(set(self._cases) - set(self._fired.ended))
                raise TimeoutError(f"nothing moves; unfinished: {left}\n{self._tail()}")

    def _note_end(self, event: Event, following: Following) -> None:
        """Whether the case has come to its end: its run is over, or waits for a person."""
        trajectory_id = event.envelope.trajectory_id
        if following.states[trajectory_id].ended:
            self._fired.ended[trajectory_id] = "done"
        elif event.envelope.ext.get("parked") == "person":
            self._fired.ended[trajectory_id] = "PersonNeeded"

    def _replace_stopped(self) -> None:
        """Raises RuntimeError for a worker that ended by itself."""
        stopped = [process for process in self._running if self._has_stopped(process)]
        for process in stopped:
            self._running.remove(process)
            self._running.append(self._start())
        self._note_frozen([process for process in stopped if process.returncode is None])

    def _has_stopped(self, process: subprocess.Popen[str]) -> bool:
        pid, status = os.waitpid(process.pid, os.WUNTRACED | os.WNOHANG)
        if pid == 0:
            return False
        self._fired.stops += 1
        if not os.WIFSTOPPED(status):
            process.returncode = os.waitstatus_to_exitcode(status)
            if process.returncode != -signal.SIGKILL:
                raise RuntimeError(f"a worker ended by itself ({process.returncode}):\n{self._tail()}")
        return True

    def _note_frozen(self, processes: list[subprocess.Popen[str]]) -> None:
        """Which case one of them stopped for is not told: it waits for all that it may be."""
        fresh = self._reached() - self._known
        self._known |= fresh
        cases = fresh | (self._known - set(self._fired.ended))
        self._frozen += [Frozen(process, cases) for process in processes]

    def _reached(self) -> set[str]:
        """The cases that have come to their point."""
        sizes = {one.name: one.stat().st_size for one in self._passed.iterdir()}
        return {one for one, size in sizes.items() if size >= self._cases[one].occurrence}

    def _wake(self, following: Following) -> None:
        """Wakes those whose cases others have finished, and ends those that were awake for long enough."""
        for frozen in list(self._frozen):
            if frozen.woken_s is None and frozen.cases <= set(self._fired.ended):
                self._before.update({one: list(following.events[one]) for one in frozen.cases})
                frozen.process.send_signal(signal.SIGCONT)
                frozen.woken_s = self._clock.monotonic_s()
            elif frozen.woken_s is not None and self._clock.monotonic_s() - frozen.woken_s > AWAKE_S:
                self._frozen.remove(frozen)
                if self._has_stopped(frozen.process):  # it has come to the point of another case
                    self._note_frozen([frozen.process])
                else:
                    frozen.process.kill()
                    frozen.process.wait()

    def _judge(self, following: Following) -> None:
        made = all_effects(self._job.ledger_url)
        woken = self._stop == signal.SIGSTOP
        self._fired.never = sorted(set(self._cases) - self._reached())
        for trajectory_id, case in self._cases.items():
            events, ended = following.events[trajectory_id], self._fired.ended[trajectory_id]
            self._fired.wrong += judge(events, case, ended, made, woken=woken)
            before = self._before.get(trajectory_id, events)
            # whoever has ended it may still let go of it; the log takes nothing else of an ended one
            if any(not isinstance(event.body, OwnershipReleased) for event in events[len(before) :]):
                self._fired.wrong.append(f"{trajectory_id}: events were accepted of a worker that woke")

    def _start(self) -> subprocess.Popen[str]:
        path = os.pathsep.join([*(str(ROOT / role) for role in ("schemas", "infra", "producers")), str(ROOT)])
        command = [sys.executable, "-m", "tests.support.matrix_member", self._job.argument()]
        out: IO[str] = self._said
        return subprocess.Popen(command, env={**os.environ, "PYTHONPATH": path}, stdout=out, stderr=out, text=True)

    def _tail(self) -> str:
        self._said.seek(0)
        return self._said.read()[-4000:]
