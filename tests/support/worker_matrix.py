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
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from tests.support.crash_matrix import ROOT, Case, judge
from tests.support.ledger import all_effects
from tests.support.matrix_member import Membership
from tests.support.points import Armed
from tests.support.writing import make_topics, read_accepted
from tracklog.infra.clock import SystemClock
from tracklog.infra.log.port import Log
from tracklog.producers.client import Client
from tracklog.schemas.codec import Event
from tracklog.schemas.errors import NotDone
from tracklog.schemas.events import OwnershipClaimed
from tracklog.schemas.topics import Topics

WORKERS = 3
PARTITIONS = 12
QUIET_S_MAX = 120.0
LOOK_S = 0.1
AWAKE_S = 3.0
"""What a woken worker has to do what it still means to do."""


@dataclass
class Fired:
    """What became of the cases: those whose worker stopped at their point, and how each ended."""

    ended: dict[str, str] = field(default_factory=dict)
    stops: int = 0
    never: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


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
        self._frozen: list[subprocess.Popen[str]] = []
        self._fired = Fired()

    async def run(self) -> Fired:
        self._passed.mkdir()
        make_topics(self._log, Topics(self._prefix), PARTITIONS)
        client = Client(self._log, Topics(self._prefix))
        try:
            self._running = [self._start() for _ in range(WORKERS)]
            for trajectory_id in self._cases:
                await client.submit(trajectory_id, "work", id=trajectory_id)
            await self._until_over(client)
            before = {one: self._events(one) for one in self._cases}
            await self._wake()
            self._judge(before)
        finally:
            for process in [*self._running, *self._frozen]:
                process.kill()
                process.wait()
            self._said.close()
        return self._fired

    async def _until_over(self, client: Client) -> None:
        clock = SystemClock()
        moved_s = clock.monotonic_s()
        while len(self._fired.ended) < len(self._cases):
            if self._replace_stopped() + await self._look(client):
                moved_s = clock.monotonic_s()
            if clock.monotonic_s() - moved_s > QUIET_S_MAX:
                left = sorted(set(self._cases) - set(self._fired.ended))
                raise TimeoutError(f"nothing moves; unfinished: {left}\n{self._tail()}")
            await asyncio.sleep(LOOK_S)

    def _replace_stopped(self) -> int:
        """How many workers had stopped at a point. Raises RuntimeError for one that ended by itself."""
        found = 0
        for process in list(self._running):
            pid, status = os.waitpid(process.pid, os.WUNTRACED | os.WNOHANG)
            if pid == 0:
                continue
            self._running.remove(process)
            if os.WIFSTOPPED(status):
                self._frozen.append(process)
            elif not os.WIFSIGNALED(status) or os.WTERMSIG(status) != signal.SIGKILL:
                raise RuntimeError(f"a worker ended by itself ({status}):\n{self._tail()}")
            self._running.append(self._start())
            found += 1
        self._fired.stops += found
        return found

    async def _look(self, client: Client) -> int:
        """How many cases have come to their end since the last look: the run has ended, or waits for a person."""
        found = 0
        for trajectory_id in set(self._cases) - set(self._fired.ended):
            with suppress(NotDone):
                await client.result(trajectory_id)
                self._fired.ended[trajectory_id] = "done"
            events = [] if trajectory_id in self._fired.ended else self._events(trajectory_id)
            if events and events[-1].envelope.ext.get("parked") == "person":
                self._fired.ended[trajectory_id] = "PersonNeeded"
            found += trajectory_id in self._fired.ended
        return found

    async def _wake(self) -> None:
        for process in self._frozen:
            process.send_signal(signal.SIGCONT)
        await asyncio.sleep(AWAKE_S if self._frozen else 0.0)

    def _judge(self, before: dict[str, list[Event]]) -> None:
        made = all_effects(self._job.ledger_url)
        for trajectory_id, case in self._cases.items():
            passes = self._passed / trajectory_id
            if not passes.exists() or passes.stat().st_size < case.occurrence:
                self._fired.never.append(f"{trajectory_id} ({case.point}, {case.occurrence})")
            ended, woken = self._fired.ended[trajectory_id], self._stop == signal.SIGSTOP
            self._fired.wrong += judge(self._log, self._prefix, case, ended, made, woken=woken)
            if woken and _overtaken(before[trajectory_id]) and before[trajectory_id] != self._events(trajectory_id):
                self._fired.wrong.append(f"{trajectory_id}: events were accepted of a worker that woke")

    def _events(self, trajectory_id: str) -> list[Event]:
        return read_accepted(self._log, trajectory_id, prefix=self._prefix)

    def _start(self) -> subprocess.Popen[str]:
        path = os.pathsep.join([*(str(ROOT / role) for role in ("schemas", "infra", "producers")), str(ROOT)])
        command = [sys.executable, "-m", "tests.support.matrix_member", self._job.argument()]
        out: IO[str] = self._said
        return subprocess.Popen(command, env={**os.environ, "PYTHONPATH": path}, stdout=out, stderr=out, text=True)

    def _tail(self) -> str:
        self._said.seek(0)
        return self._said.read()[-4000:]


def _overtaken(events: list[Event]) -> bool:
    """One that had ended its task before it was frozen is overtaken by nobody, and may still let go of it."""
    return len([event for event in events if isinstance(event.body, OwnershipClaimed)]) > 1
