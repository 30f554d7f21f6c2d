"""A worker: a member of the group that owns the inbox, and runs the trajectories in its partitions (DESIGN §6).

    the partition loop's thread    reads events and inbox of its partitions, and hands them over
    the event loop                 knows which trajectories can go on (`Roster`), and has one task for each that does

Nothing here is what makes it safe to run many: the claim is. A partition that is taken away, a process that is
killed or frozen, two workers of one name: whoever claims last goes on, and the log accepts nothing of the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Literal

from tracklog.infra.lines import about
from tracklog.infra.partition_loop import PartitionLoop
from tracklog.infra.partition_thread import owning
from tracklog.infra.settings import LoopSettings
from tracklog.producers.leash import Leash
from tracklog.producers.roster import Arrival, Known, Now, Roster, Standings
from tracklog.producers.settle import check_settles
from tracklog.producers.spans import Index
from tracklog.producers.worker_partitions import Partitions
from tracklog.producers.worker_run import Runner
from tracklog.schemas.errors import Moved

__all__ = ["Worker"]

AGAIN_S: Final = 1.0
"""After which a trajectory is looked at again whose end could not be seen: the log was away, or it was taken over."""
DOUBT_AGAIN_S: Final = 5.0
"""The least pause before one that is in doubt is opened again."""
LOOK_S_MAX: Final = 5.0
"""Between two looks at the time while one waits for it: a clock that is set announces nothing."""
CUT_OFF_S: Final = 5.0
"""What tasks that were cut off have to end."""


@dataclass(slots=True)
class _Task:
    task: asyncio.Task[None]
    leash: Leash
    partition: int


class Worker:
    """Made and run on one event loop. `told` is called with a line for people now and then.

    Raises InvalidTool for an agent's tool whose calls it could not settle: each of its runs would only be stopped.
    """

    def __init__(
        self, runner: Runner, *, loop_settings: LoopSettings | None = None, told: Callable[[str], None] | None = None
    ) -> None:
        for agent in runner.agents.values():
            for tool in agent.tools:
                check_settles(tool, runner.timing.grace_s, "worker.grace_s")
        self._runner = runner
        self._settings = runner.settings
        self._told = told if told is not None else lambda _: None
        self.roster: Final = Roster(tries_max=runner.settings.tries_max)
        self._tasks: dict[str, _Task] = {}
        self._wake = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._leaving = False
        self._revoking_until_s = 0.0
        self.partitions: set[int] = set()
        self._owner = Partitions(
            runner.log,
            runner.topics,
            grace_us=runner.grace_us,
            assigned=lambda p, found: self._on_loop(self._assigned, p, found),
            arrived=lambda p, arrivals: self._on_loop(self._arrived, p, arrivals),
            revoked=self._revoked,
        )
        given = loop_settings if loop_settings is not None else LoopSettings()
        quick = given.model_copy(update={"batch_wait_s": 0.0})  # an outcome that has come is waited for
        self.partition_loop: Final = PartitionLoop(
            runner.log, runner.topics.inbox, self._owner, clock=runner.clock, settings=quick
        )

    @property
    def running(self) -> int:
        """Trajectories that are worked on now."""
        return len(self._tasks)

    @property
    def running_max(self) -> int:
        return self._settings.trajectories_max

    def has_mail(self, trajectory_id: str) -> bool:
        """Whether something has come for a trajectory that was not taken yet."""
        kept = self.roster.get(trajectory_id)
        return kept is not None and bool(kept.arrivals)

    async def run(self, stop: asyncio.Event) -> None:
        """Works until `stop` is set, then moves what it has. Raises what ended the partition loop."""
        group = self._runner.topics.group(self._settings.group)
        async with owning(self.partition_loop, group) as ended:
            waits = {asyncio.create_task(stop.wait()), asyncio.create_task(ended.wait())}
            try:
                while not stop.is_set() and not ended.is_set():
                    self._wake.clear()
                    self._start_some()
                    await self._until_something(waits)
            finally:
                for one in waits:
                    one.cancel()
                await self._move()

    def _on_loop(self, function: Callable[..., None], *arguments: object) -> None:
        self._loop.call_soon_threadsafe(function, *arguments)

    def _assigned(self, partition: int, found: Standings) -> None:
        self.partitions.add(partition)
        self.roster.assigned(partition, found)
        places = {trajectory_id.encode(): one for trajectory_id, one in found.places.items()}
        self._runner.producer.index(partition, Index(places, found.end))
        self._wake.set()

    def _arrived(self, partition: int, arrivals: list[tuple[str, Arrival]]) -> None:
        for trajectory_id, arrival in arrivals:
            self.roster.arrived(partition, trajectory_id, arrival)
        self._wake.set()

    def _revoked(self, partition: int) -> None:
        """On the partition loop's thread: returns when the partition is let go of, or its time is over.

        Several that are taken away together have one bound: the group waits for all of them.
        """
        now_s = self._runner.clock.monotonic_s()
        if now_s > self._revoking_until_s + self._settings.revoke_wait_s:
            self._revoking_until_s = now_s + self._settings.revoke_wait_s
        left_s = max(0.0, self._revoking_until_s - now_s)
        future: Future[None] = asyncio.run_coroutine_threadsafe(self._give_up(partition, left_s), self._loop)
        with suppress(FutureTimeout, CancelledError):  # the claim of the next owner ends what is not over
            future.result(left_s + CUT_OFF_S)

    async def _give_up(self, partition: int, wait_s: float) -> None:
        self.partitions.discard(partition)
        self.roster.revoked(partition)
        self._runner.producer.index(partition, None)
        await self._halt([one for one in self._tasks.values() if one.partition == partition], wait_s)

    async def _move(self) -> None:
        """Lets every trajectory finish its step and releases it; what takes longer is cut off."""
        self._leaving = True
        if self._tasks:
            self._told(f"leaving: {len(self._tasks)} trajectories finish their step")
        await self._halt(list(self._tasks.values()), self._settings.move_wait_s)

    async def _halt(self, tasks: list[_Task], wait_s: float) -> None:
        if not tasks:
            return
        for one in tasks:
            one.leash.pull(Moved("its worker goes away"))
        _, pending = await asyncio.wait({one.task for one in tasks}, timeout=wait_s)
        for task in pending:
            task.cancel()
        if pending:
            await asyncio.wait(pending, timeout=CUT_OFF_S)

    def _start_some(self) -> None:
        while not self._leaving and len(self._tasks) < self._settings.trajectories_max:
            trajectory_id = self.roster.next(self._now())
            if trajectory_id is None:
                return
            kept = self.roster.get(trajectory_id)
            assert kept is not None
            self.roster.take(trajectory_id)
            leash = Leash()
            task = asyncio.create_task(self._work(trajectory_id, leash), name=f"tracklog-{trajectory_id}")
            self._tasks[trajectory_id] = _Task(task, leash, kept.partition)

    async def _work(self, trajectory_id: str, leash: Leash) -> None:
        known: Known | None = None
        kept = self.roster.get(trajectory_id)
        with about(trajectory=trajectory_id, partition=None if kept is None else kept.partition):
            try:
                if kept is not None:
                    known = await self._runner.work(trajectory_id, kept, leash)
            except Exception as error:  # noqa: BLE001 - one trajectory never ends the worker; it is looked at again
                self._told(f"{trajectory_id}: {type(error).__name__}: {error}")
            finally:
                del self._tasks[trajectory_id]
                self.roster.give_back(trajectory_id, known, again_s=self._again_s(known))
                self._wake.set()

    def _again_s(self, known: Known | None) -> float:
        pause_s = AGAIN_S if known is None else DOUBT_AGAIN_S if known.parked == "doubt" else 0.0
        return self._now().s + pause_s if pause_s else 0.0

    def _now(self) -> Now:
        return Now(self._runner.clock.now_us(), self._runner.clock.monotonic_s())

    async def _until_something(self, waits: set[asyncio.Task[Literal[True]]]) -> None:
        """Until something came or ended, it is time for one that waits, or the worker is told to stop."""
        waking = asyncio.create_task(self._wake.wait())
        left_s = self.roster.left_s(self._now())
        wait_s = None if left_s is None else min(LOOK_S_MAX, max(0.01, left_s))
        try:
            await asyncio.wait({waking, *waits}, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waking.cancel()
