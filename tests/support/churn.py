"""Dispatchers that come and go every few seconds while agents leave them calls: their partitions move all the time.

Those that leave are told to (SIGTERM) and end what they have begun, so nothing is ever in doubt: each call happens
once, and nobody is asked. Judged from the log and from the service that counts effects.
"""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import NamedTuple

from tests.support.crash_matrix import CLASSES, Case, judge, standing
from tests.support.following import Following
from tests.support.ledger import all_effects
from tests.support.matrix_member import Membership
from tests.support.member_matrix import DISPATCHER, PARTITIONS, QUIET_S_MAX, TOLD_TO_END, WORKER, Member, start_member
from tests.support.points import Armed
from tests.support.writing import make_topics
from tracklog.infra.clock import SystemClock
from tracklog.infra.log.port import Log
from tracklog.producers.client import Client
from tracklog.schemas.events import Escalated, ToolResult
from tracklog.schemas.topics import Topics
from tracklog.schemas.values import Settled

OPEN_MAX = 8
MEMBERS_MAX = 4
EVERY_S = (2.0, 5.0)
LOOK_S = 0.1
STARTED_A_SECOND_MAX = 4


class Churned(NamedTuple):
    """`moves`: dispatchers that came or left. `settled`: how the results of the calls came to be known."""

    calls: int
    moves: int
    settled: dict[str, int]
    wrong: list[str]


class Churn:
    """Two dispatchers stay at least; with them others come and go."""

    def __init__(self, log: Log, prefix: str, folder: Path, ledger_url: str, *, seconds: float, seed: int) -> None:
        self._log = log
        self._prefix = prefix
        self._seconds = seconds
        self._drawn = random.Random(seed)
        self._said = (folder / f"{prefix}.said").open("w+")
        number = round(seconds * STARTED_A_SECOND_MAX)
        self._names = [f"{CLASSES[one % len(CLASSES)]}.{one}" for one in range(number)]
        passed = folder / f"{prefix}.passed"
        passed.mkdir()
        self._job = Membership(
            log.url,
            prefix,
            str(folder / "blobs"),
            ledger_url,
            str(passed),
            {name: Armed("nowhere", 0, 0.0, 0) for name in self._names},
            dispatches=True,
            trajectories_max=OPEN_MAX,
        )
        self._staying: list[Member] = []
        self._leaving: list[Member] = []
        self._moves = 0
        self._clock = SystemClock()

    async def run(self) -> Churned:
        """Raises RuntimeError for a dispatcher that ended badly, TimeoutError when nothing moves."""
        topics = Topics(self._prefix)
        make_topics(self._log, topics, PARTITIONS)
        worker = start_member(WORKER, self._job, self._said)
        try:
            self._staying = [start_member(DISPATCHER, self._job, self._said) for _ in range(2)]
            with Following(self._log, topics.events) as following:
                begun = await self._work(following, Client(self._log, topics))
            return self._judged(following, begun)
        finally:
            for member in (worker, *self._staying, *self._leaving):
                member.process.kill()
                member.process.wait()
            self._said.close()

    async def _work(self, following: Following, client: Client) -> list[str]:
        """The trajectories that were begun; all have ended."""
        begun: list[str] = []
        now_s = moved_s = self._clock.monotonic_s()
        until_s, next_s = now_s + self._seconds, now_s
        while now_s < until_s or any(standing(following.events[name]) is None for name in begun):
            left = [name for name in begun if standing(following.events[name]) is None]
            if now_s < until_s and len(left) < OPEN_MAX and len(begun) < len(self._names):
                begun.append(self._names[len(begun)])
                await client.submit(begun[-1], "work", id=begun[-1])
            if now_s > next_s:
                self._move()
                next_s = now_s + self._drawn.uniform(*EVERY_S)
            self._look_after_leaving()
            moved_s = now_s if await asyncio.to_thread(following.poll, LOOK_S) else moved_s
            now_s = self._clock.monotonic_s()
            if now_s - moved_s > QUIET_S_MAX:
                raise TimeoutError(f"nothing moves; open: {left}\n{self._tail()}")
        return begun

    def _move(self) -> None:
        """One more dispatcher, or one less: any of them, also one that was there from the start."""
        self._moves += 1
        if len(self._staying) <= 2 or (len(self._staying) < MEMBERS_MAX and self._drawn.random() < 0.5):
            self._staying.append(start_member(DISPATCHER, self._job, self._said))
        else:
            gone = self._staying.pop(self._drawn.randrange(len(self._staying)))
            gone.process.terminate()
            self._leaving.append(gone)

    def _look_after_leaving(self) -> None:
        for member in [*self._staying, *self._leaving]:
            code = member.process.poll()
            if code is None:
                continue
            if code not in TOLD_TO_END or member in self._staying:
                raise RuntimeError(f"a dispatcher ended with {code}:\n{self._tail()}")
            self._leaving.remove(member)

    def _judged(self, following: Following, begun: list[str]) -> Churned:
        made, wrong, settled = all_effects(self._job.ledger_url), [], dict.fromkeys((one.value for one in Settled), 0)
        for name in begun:
            events = following.events[name]
            wrong += judge(events, Case(name, "nowhere", 1, 0.0), standing(events) or "", made)
            for event in events:
                if isinstance(event.body, ToolResult):
                    settled[event.body.settled.value] += 1
        asked = [event for name in begun for event in following.events[name] if isinstance(event.body, Escalated)]
        wrong += [f"{event.envelope.trajectory_id}: in doubt although nobody died: {event.body}" for event in asked]
        found = {one: count for one, count in settled.items() if count}
        return Churned(sum(settled.values()), self._moves, found, wrong)

    def _tail(self) -> str:
        self._said.seek(0)
        return self._said.read()[-4000:]
