"""The crash matrix through members of a group: one is killed, or frozen, at the point of each case, and another one
takes over.

A few processes share all cases: workers, or dispatchers and a worker. One that is killed is replaced; one that is
frozen, too, and is woken when the case that froze it has come to its end in another. Judged by `crash_matrix`.
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

from tests.support.crash_matrix import ROOT, Case, judge, standing
from tests.support.following import Following
from tests.support.ledger import all_effects
from tests.support.matrix_member import Membership
from tests.support.points import THEN, Armed, Points
from tests.support.writing import make_topics
from tracklog.infra.clock import SystemClock
from tracklog.infra.log.port import Log
from tracklog.producers.client import Client
from tracklog.schemas.codec import Event
from tracklog.schemas.errors import LogUnavailable
from tracklog.schemas.events import OwnershipReleased
from tracklog.schemas.topics import Topics

WORKER = "tests.support.matrix_member"
DISPATCHER = "tests.support.matrix_dispatcher"
WORKERS = (WORKER,) * 3
DISPATCHERS = (DISPATCHER,) * 2 + (WORKER,)
UNREACHED_MAX = 1
"""Dispatched cases on their way to their point at a time: a stop meets the other calls of its process, too."""
ROLES = ("schemas", "infra", "producers", "processors", "consumers")
PARTITIONS = 12
QUIET_S_MAX = 240.0
TOPICS_S_MAX = 180.0
AWAY_MAX = 100
"""Members that may find nobody to answer when they start, where brokers are killed."""
LOOK_S = 0.1
SETTLED_S = 1.0
FROZEN_S = 5.0
"""How long a member is frozen at least: the others have its partitions by then."""
AWAKE_S = 3.0
"""What a woken member has to do what it still means to do, before it is told to stop."""

TOLD_TO_END = (0, 1, 3, -signal.SIGTERM)
"""How a member ends that is told to: well, or while the log is away, or before it listens."""


@dataclass
class Fired:
    """What became of the cases: those whose member stopped at their point, and how each ended."""

    ended: dict[str, str] = field(default_factory=dict)
    stops: int = 0
    never: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


@dataclass
class Member:
    module: str
    process: subprocess.Popen[str]
    told_to_end: bool = False


@dataclass
class Frozen:
    """A member that stopped at the point of one of these cases. `woken_s`: when it was let go on."""

    member: Member
    cases: set[str]
    since_s: float
    woken_s: float | None = None


class MemberMatrix:
    """`stop`: SIGKILL or SIGSTOP. `members`: WORKERS, or DISPATCHERS of the calls of one worker."""

    def __init__(
        self,
        log: Log,
        prefix: str,
        folder: Path,
        ledger_url: str,
        cases: Sequence[Case],
        stop: int,
        *,
        members: Sequence[str] = WORKERS,
        replicas: int = 1,
    ) -> None:
        self._log = log
        self._prefix = prefix
        self._cases = {case.trajectory_id: case for case in cases}
        self._stop = stop
        self._members = members
        self._replicas = replicas
        self._away_left = AWAY_MAX if replicas > 1 else 0
        passed = folder / f"{prefix}.passed"
        passed.mkdir()
        self._said = (folder / f"{prefix}.said").open("w+")
        armed = {case.trajectory_id: _armed(case, stop) for case in cases}
        self._points = Points(armed, passed)
        self._job = Membership(
            log.url, prefix, str(folder / "blobs"), ledger_url, str(passed), armed, dispatches=DISPATCHER in members
        )
        self._unreached_max = UNREACHED_MAX if self._job.dispatches else len(cases)
        self._running: list[Member] = []
        self._frozen: list[Frozen] = []
        self._fired = Fired()
        self._known: set[str] = set()
        self._before: dict[str, list[Event]] = {}
        self._clock = SystemClock()

    async def run(self) -> Fired:
        await self._make_topics()
        try:
            self._running = [start_member(module, self._job, self._said) for module in self._members]
            with Following(self._log, Topics(self._prefix).events) as following:
                await self._until_over(following)
                while await asyncio.to_thread(following.poll, SETTLED_S):
                    pass
            self._judge(following)
        finally:
            for member in [*self._running, *(one.member for one in self._frozen)]:
                member.process.kill()
                member.process.wait()
            self._said.close()
        return self._fired

    async def _make_topics(self) -> None:
        """Tried again while the controller is one of the brokers that are killed: what is there already stays."""
        until_s = self._clock.monotonic_s() + TOPICS_S_MAX
        while True:
            try:
                await asyncio.to_thread(make_topics, self._log, Topics(self._prefix), PARTITIONS, self._replicas)
            except LogUnavailable:
                if self._clock.monotonic_s() > until_s:
                    raise
            else:
                return

    async def _until_over(self, following: Following) -> None:
        """Until all cases have ended, and all that were frozen have woken."""
        client, waiting = Client(self._log, Topics(self._prefix)), list(self._cases)
        moved_s = self._clock.monotonic_s()
        while len(self._fired.ended) < len(self._cases) or self._frozen:
            past = (self._reached() & self._reached_twice()) | self._fired.ended.keys()
            on_the_way = self._cases.keys() - waiting - past
            for trajectory_id in waiting[: max(0, self._unreached_max - len(on_the_way))]:
                await client.submit(trajectory_id, "work", id=trajectory_id)
                waiting.remove(trajectory_id)
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
        """Whether the case has come to its end: its run is over, or a person is asked."""
        trajectory_id = event.envelope.trajectory_id
        ended = standing(following.events[trajectory_id])
        if ended is None:
            self._fired.ended.pop(trajectory_id, None)  # whoever was frozen has made the call after all
        else:
            self._fired.ended[trajectory_id] = ended

    def _replace_stopped(self) -> None:
        """Raises RuntimeError for a member that ended by itself."""
        stopped = [member for member in self._running if self._has_stopped(member)]
        for member in stopped:
            self._running.remove(member)
            self._running.append(start_member(member.module, self._job, self._said))
        self._note_frozen([member for member in stopped if member.process.returncode is None])

    def _has_stopped(self, member: Member) -> bool:
        """Whether it is frozen or killed now. Raises RuntimeError when it ended by itself, untold."""
        pid, status = os.waitpid(member.process.pid, os.WUNTRACED | os.WNOHANG)
        if pid == 0:
            return False
        if not os.WIFSTOPPED(status):
            code = member.process.returncode = os.waitstatus_to_exitcode(status)
            if code in TOLD_TO_END and member.told_to_end:
                return False
            if code == LogUnavailable.exit_code and self._away_left > 0:
                self._away_left -= (
                    1  # it was started while brokers were away; whoever starts such processes does it again
                )
                return True
            if code != -signal.SIGKILL:
                raise RuntimeError(f"a member ended by itself ({code}):\n{self._tail()}")
        self._fired.stops += 1
        return True

    def _note_frozen(self, members: list[Member]) -> None:
        """Which case one of them stopped for is not told: it waits for all that it may be."""
        fresh = self._reached() - self._known
        self._known |= fresh
        cases = fresh | (self._known - set(self._fired.ended))
        self._frozen += [Frozen(member, cases, self._clock.monotonic_s()) for member in members]

    def _reached(self) -> set[str]:
        """The cases that have come to their point."""
        return {name for name, case in self._cases.items() if self._points.passed(name) >= case.occurrence}

    def _reached_twice(self) -> set[str]:
        return {name for name, case in self._cases.items() if case.then is None or self._points.passed(name + THEN)}

    def _wake(self, following: Following) -> None:
        """Wakes those whose cases others have finished, and ends those that were awake for long enough."""
        now_s = self._clock.monotonic_s()
        for frozen in list(self._frozen):
            if frozen.woken_s is None:
                if frozen.cases <= set(self._fired.ended) and now_s - frozen.since_s > FROZEN_S:
                    self._before.update({one: list(following.events[one]) for one in frozen.cases})
                    frozen.member.process.send_signal(signal.SIGCONT)
                    frozen.woken_s = now_s
            elif self._has_stopped(frozen.member):  # it has come to the point of another case
                self._frozen.remove(frozen)
                self._note_frozen([frozen.member])
            elif frozen.member.process.returncode is not None:
                self._frozen.remove(frozen)
            elif not frozen.member.told_to_end and now_s - frozen.woken_s > AWAKE_S:
                frozen.member.told_to_end = True
                frozen.member.process.terminate()

    def _judge(self, following: Following) -> None:
        made = all_effects(self._job.ledger_url)
        woken = self._stop == signal.SIGSTOP
        self._fired.never = sorted(self._cases.keys() - (self._reached() & self._reached_twice()))
        for trajectory_id, case in self._cases.items():
            events, ended = following.events[trajectory_id], self._fired.ended[trajectory_id]
            self._fired.wrong += judge(events, case, ended, made, woken=woken)
            before = self._before.get(trajectory_id, events)
            # whoever has ended it may still let go of it; the log takes nothing else of an ended one
            after = [event for event in events[len(before) :] if not isinstance(event.body, OwnershipReleased)]
            if after and (standing(before) == "done" or not self._job.dispatches):
                self._fired.wrong.append(f"{trajectory_id}: events were accepted of a member that woke")

    def _tail(self) -> str:
        self._said.seek(0)
        return self._said.read()[-4000:]


def start_member(module: str, job: Membership, said: IO[str]) -> Member:
    path = os.pathsep.join([*(str(ROOT / role) for role in ROLES), str(ROOT)])
    command = [sys.executable, "-m", module, job.argument()]
    environment = {**os.environ, "PYTHONPATH": path}
    return Member(module, subprocess.Popen(command, env=environment, stdout=said, stderr=said, text=True))


def _armed(case: Case, stop: int) -> Armed:
    return Armed(case.point, case.occurrence, case.pause_s, stop, case.then)
