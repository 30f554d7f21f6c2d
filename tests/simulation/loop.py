"""An event loop without real time: one seed decides at every step which process goes on.

A process runs its own steps in their order, as an asyncio program does; between processes the order is drawn. When
nobody can go on, time jumps to the next timer. Threads are calls of the log that are made between two steps.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import random
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final

PROCESS: Final[contextvars.ContextVar[Process]] = contextvars.ContextVar("process")
LATENCY_S: Final = 0.02
"""The longest way to the log and back, each."""
TICK_S: Final = 1e-6
"""The shortest time that a timer takes."""
CLOSES: Final = 8
"""How often a coroutine that awaits while it is closed is told again."""


class Stalled(Exception):
    """Nothing can ever happen any more."""


class Process:
    """A start of a process. `skew_us`: what its wall clock is ahead of the log's. `slept_s`: how long its machine was
    suspended, which monotonic time does not count. `awake_s`: until when it is frozen."""

    def __init__(self, loop: SimLoop, name: str, skew_us: int = 0) -> None:
        self.loop, self.name, self.skew_us = loop, name, skew_us
        self.alive, self.frozen = True, False
        self.slept_s = self.awake_s = 0.0
        self.due: list[tuple[int, Any]] = []
        """Faults that come after so many further steps of this process."""
        self.ready: deque[asyncio.Handle] = deque()
        self.context = contextvars.Context()
        self.context.run(PROCESS.set, self)

    def now_us(self) -> int:
        return self.loop.now_us + self.skew_us

    def monotonic_s(self) -> float:
        return self.loop.time() - self.slept_s

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        self.loop.create_task(work, context=self.context)

    def kill(self) -> None:
        self.alive = False
        self.ready.clear()
        self.loop.processes.remove(self)


class SimTask(asyncio.Task[Any]):
    """Sets of tasks are gone through in one order in every run: by number, not by address."""

    def __init__(self, coro: Any, *, serial: int, context: contextvars.Context | None = None, **options: Any) -> None:
        self._serial = serial
        self.own = context if context is not None else contextvars.copy_context()
        """In which its coroutine runs, and has to be closed."""
        super().__init__(coro, context=self.own, **options)

    def __hash__(self) -> int:
        return self._serial


class SimLoop(asyncio.BaseEventLoop):
    """`before_step` is called with each process before a step of it, `asked` with one that asks something outside of
    it, by the name of the function. `steps_max` bounds a run that never ends."""

    def __init__(self, chance: random.Random, steps_max: int) -> None:
        super().__init__()
        self.chance = chance
        self.steps = 0
        self.before_step: Callable[[Process], None] = lambda _: None
        self.asked: Callable[[str, Process], object] = lambda _, __: None
        self.idle_s = 0.0
        """Set by a read that found nothing: how long it would have waited."""
        self._steps_max = steps_max
        self._now_s = 0.0
        self._ready = self
        self._runnable: list[Process] = []
        self._tasks: list[SimTask] = []
        self._serial = 0
        self.processes: list[Process] = []
        self.world = self.process("world")
        self.set_task_factory(self._task)

    def process(self, name: str, skew_us: int = 0) -> Process:
        made = Process(self, name, skew_us)
        self.processes.append(made)
        return made

    @property
    def now_us(self) -> int:
        return 1_700_000_000_000_000 + round(self._now_s * 1_000_000)

    def time(self) -> float:
        return self._now_s

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Any, *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        """Never so soon that time would not have passed: whoever waits for a time asks again when it comes."""
        return self.call_at(self._now_s + max(delay, TICK_S), callback, *args, context=context)

    def later(self, seconds: float, function: Callable[..., Any], *args: Any, process: Process | None = None) -> None:
        """A timer of a process, the world's when none is given."""
        self.call_later(seconds, function, *args, context=(process or self.world).context)

    def append(self, handle: asyncio.Handle) -> None:
        """The loop's queue is one for each process."""
        process = handle._context.get(PROCESS, self.world)  # type: ignore[attr-defined]
        if process.alive:
            process.ready.append(handle)

    def clear(self) -> None:
        """As the base class clears its queue when it is closed."""

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> Any:  # type: ignore[override]
        """A request to the log: made and answered some time later, by a process that may be frozen meanwhile."""
        answer = self.create_future()
        process = PROCESS.get()
        called = getattr(func, "args", (func,))[0]
        self.asked(called.__name__, process)

        def give(result: Any, error: BaseException | None) -> None:
            if not answer.done():
                answer.set_result(result) if error is None else answer.set_exception(error)

        def make() -> None:
            if not process.alive:
                return
            self.idle_s, result, error = 0.0, None, None
            try:
                result = process.context.copy().run(func, *args)
            except Exception as raised:  # noqa: BLE001 - it is given to whoever asked
                error = raised
            self.later(self.idle_s + self.chance.uniform(0, LATENCY_S), give, result, error, process=process)

        self.later(self.chance.uniform(0, LATENCY_S), make)
        return answer

    def discard(self) -> None:
        """Ends what is still there without running it. What a task awaits while it ends becomes a task as ever, and is
        ended after it: outside of a running loop it would be a coroutine that nobody has awaited. An async generator
        that awaits while it ends is left by its task as it is: what it waits for is ended after all of them."""
        asyncio._set_running_loop(self)
        generators = list(self._asyncgens)  # type: ignore[attr-defined]
        try:
            for task in self._tasks:
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                _close(task.get_coro(), task.own)
            for generator in generators:
                _close(generator.ag_await, self.world.context)
        finally:
            asyncio._set_running_loop(None)
        self._tasks.clear()
        self._scheduled.clear()  # type: ignore[attr-defined]
        self.close()

    def _task(self, loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> SimTask:
        self._serial += 1
        task = SimTask(coro, serial=self._serial, loop=loop, **options)
        self._tasks.append(task)
        return task

    def _run_once(self) -> None:
        runnable = self._due()
        process = runnable[0] if len(runnable) == 1 else self.chance.choice(runnable)
        handle = process.ready.popleft()
        if handle.cancelled():
            return
        self.steps += 1
        if self.steps > self._steps_max:
            raise Stalled(f"more than {self._steps_max} steps")
        if process is not self.world:
            self.before_step(process)
            if not process.alive:
                return
            if process.frozen:
                process.ready.appendleft(handle)
                return
        handle._run()

    def _due(self) -> list[Process]:
        """Those that can go on, after time has passed where nobody could."""
        scheduled = self._scheduled  # type: ignore[attr-defined]
        while True:
            while scheduled and (scheduled[0]._when <= self._now_s or scheduled[0].cancelled()):
                timer = heapq.heappop(scheduled)
                timer._scheduled = False
                if not timer.cancelled():
                    self.append(timer)
            runnable = [one for one in self.processes if one.ready and not one.frozen]
            if runnable:
                return runnable
            if not scheduled:
                raise Stalled("nothing is under way any more")
            self._now_s = scheduled[0]._when

    def _process_events(self, event_list: Any) -> None: ...

    def _write_to_self(self) -> None: ...


def _close(awaited: Any, context: contextvars.Context) -> None:
    """A coroutine, or whatever else somebody waits for. One that awaits while it is closed is closed again."""
    for _ in range(CLOSES if hasattr(awaited, "close") else 0):
        with suppress(RuntimeError, asyncio.InvalidStateError):
            context.run(awaited.close)
            break
