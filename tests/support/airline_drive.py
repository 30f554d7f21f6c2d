"""Runs the airline's recordings through workers: gives tasks, speaks for the users, answers for people, kills workers.

Everything it does rests on what the log accepted. A killed worker is replaced while there are tasks to give; after that
workers are killed until one is left, and that one finishes.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.airline import Call, Recording, canonical
from tests.support.airline_agents import spec_of
from tests.support.airline_service import all_effects, make_by_hand
from tests.support.following import Following
from tests.support.worker_process import Fleet
from tests.support.writing import make_topics
from tracklog.infra.clock import SystemClock
from tracklog.infra.log.open import open_log
from tracklog.producers.answers import Answers
from tracklog.producers.client import Client
from tracklog.schemas import events as ev
from tracklog.schemas.codec import Event
from tracklog.schemas.state import State

QUIET_S_MAX = 120.0
"""Without an accepted event for so long, something hangs."""
POLL_S = 0.1
PERSON = "operator"


@dataclass(frozen=True)
class Plan:
    """`kill_every`: accepted events from one kill to the next, None for no kills. `effects`: see `effects_chosen`."""

    recordings: Sequence[Recording]
    effects: str
    workers: int = 3
    in_flight: int = 10
    kill_every: int | None = None
    seed: int = 1
    partitions: int = 12


@dataclass
class Driven:
    """What came of it: the accepted events of each run, the effects by the service's count."""

    events: dict[str, list[Event]] = field(default_factory=lambda: defaultdict(list))
    effects: list[dict[str, Any]] = field(default_factory=list)
    accepted: int = 0
    kills: int = 0
    asked: int = 0
    """Calls about which a person was asked, and of these done by the person."""
    by_hand: int = 0
    seconds: float = 0.0


class Drive:
    def __init__(self, plan: Plan, fleet: Fleet, service_url: str, said: Path) -> None:
        self.driven = Driven()
        self._plan = plan
        self._fleet = fleet
        self._service_url = service_url
        self._said = said
        self._client = Client(fleet.log, fleet.topics, by="user")
        self._answers = Answers(fleet.log, fleet.topics)
        self._recordings = {one.id: one for one in plan.recordings}
        self._to_submit = deque(one.id for one in plan.recordings)
        self._states: dict[str, State] = {}
        self._spoken: defaultdict[str, int] = defaultdict(int)
        self._open = 0
        self._workers: list[subprocess.Popen[str]] = []
        self._random = random.Random(plan.seed)
        self._clock = SystemClock()

    async def run(self) -> Driven:
        """Until all runs have ended. Raises TimeoutError that says where those stand that have not."""
        topic = self._fleet.topics.events
        started_s = heard_s = self._clock.monotonic_s()
        try:
            for _ in range(self._plan.workers):
                self._start_worker()
            for _ in range(self._plan.in_flight):
                await self._submit()
            with Following(self._fleet.log, topic) as following:
                self.driven.events, self._states = following.events, following.states
                while self._open:
                    accepted = await asyncio.to_thread(following.poll, POLL_S)
                    for event in accepted:
                        await self._see(event)
                    heard_s = self._clock.monotonic_s() if accepted else heard_s
                    self._check(heard_s)
            self.driven.seconds = self._clock.monotonic_s() - started_s
            self.driven.effects = all_effects(self._service_url)
        finally:
            for worker in self._workers:
                worker.kill()
                worker.wait()
        return self.driven

    def _start_worker(self) -> None:
        with self._said.open("a") as said:
            self._workers.append(self._fleet.start(said=said.fileno()))

    async def _submit(self) -> None:
        if self._to_submit:
            self._open += 1
            recording = self._recordings[self._to_submit.popleft()]
            await self._client.submit(recording.id, recording.run.task, id=recording.id)

    def _check(self, heard_s: float) -> None:
        died = [worker for worker in self._workers if worker.poll() is not None]
        stand = {one: (state.summary, state.parked, state.reason) for one, state in self._states.items()}
        where = "\n".join(f"{one}: {what}" for one, what in stand.items() if what[0] != "completed")
        if died:
            raise RuntimeError(f"a worker ended with {died[0].returncode}:\n{self._said.read_text()[-4000:]}\n{where}")
        if self._clock.monotonic_s() - heard_s > QUIET_S_MAX:
            raise TimeoutError(
                f"no event for {QUIET_S_MAX:g} s; unfinished:\n{where}\n{self._said.read_text()[-4000:]}"
            )

    async def _see(self, event: Event) -> None:
        self.driven.accepted += 1
        await self._answer(event.envelope.trajectory_id, event)
        every = self._plan.kill_every
        if every is not None and self.driven.accepted % every == 0:
            self._kill()

    async def _answer(self, trajectory_id: str, event: Event) -> None:
        if isinstance(event.body, ev.ModelReplied) and not event.body.tool_calls:
            number, self._spoken[trajectory_id] = self._spoken[trajectory_id], self._spoken[trajectory_id] + 1
            await self._client.send(trajectory_id, self._recordings[trajectory_id].says(number))
        elif isinstance(event.body, ev.Escalated):
            await self._settle(trajectory_id, event.body.call_id)
        elif isinstance(event.body, ev.TaskEnded):
            self._open -= 1
            await self._submit()

    async def _settle(self, trajectory_id: str, call_id: str) -> None:
        """A person looks whether it happened, does it if not, and says that it is done."""
        bodies = (event.body for event in self.driven.events[trajectory_id])
        intent = next(body for body in bodies if isinstance(body, ev.ToolIntent) and body.call_id == call_id)
        call: Call = (trajectory_id, intent.tool, canonical(intent.arguments.text))
        done = [one for one in all_effects(self._service_url) if one["key"] == intent.idempotency_key]
        if not done:
            make_by_hand(self._service_url, call, intent.idempotency_key)
            self.driven.by_hand += 1
        self.driven.asked += 1
        output = next(output for made, output in self._recordings[trajectory_id].calls if made == call)
        await self._answers.settle(trajectory_id, call_id, person=PERSON, happened=True, output=output)

    def _kill(self) -> None:
        """A random one; replaced while there is more to do than is under way, and never the last."""
        replaced = bool(self._to_submit)
        if len(self._workers) == 1 and not replaced:
            return
        victim = self._workers.pop(self._random.randrange(len(self._workers)))
        os.kill(victim.pid, signal.SIGKILL)
        victim.wait()
        self.driven.kills += 1
        if replaced:
            self._start_worker()


async def drive(plan: Plan, bootstrap: str, prefix: str, folder: Path, service_url: str) -> Driven:
    """The plan on topics of its own."""
    log = open_log(f"kafka://{bootstrap}")
    try:
        settings: dict[str, object] = {"topics.partitions": plan.partitions}
        if plan.effects == "mixed":
            settings |= {"worker.start_within_s": 15, "worker.grace_s": 11}
        fleet = Fleet(
            log,
            prefix,
            folder / "blobs",
            agents=[spec_of(one) for one in plan.recordings],
            env={"AIRLINE_URL": service_url, "AIRLINE_EFFECTS": plan.effects},
            settings=settings,
        )
        make_topics(log, fleet.topics, plan.partitions)
        return await Drive(plan, fleet, service_url, folder / f"{prefix}.said").run()
    finally:
        log.close()
