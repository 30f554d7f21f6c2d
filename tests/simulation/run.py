"""One run of a scenario, from its first step until everything has ended as it must or something is wrong."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, cast
from unittest.mock import patch

from tests.simulation.blobs import Blobs
from tests.simulation.dispatching import dispatch, follows_the_log
from tests.simulation.faults import Faults
from tests.simulation.log import Store
from tests.simulation.loop import Process, SimLoop, Stalled
from tests.simulation.owner import Owner
from tests.simulation.people import People
from tests.simulation.routing import route
from tests.simulation.scenario import Scenario
from tests.simulation.tools import GRACE_S, SKEW_S_MAX, World
from tests.simulation.trimming import Trimmer
from tests.simulation.truth import Known, Truth, Violation
from tracklog.infra.blobs import BlobStore
from tracklog.infra.clock import SeededEntropy
from tracklog.producers import settle
from tracklog.schemas import codec

STEPS_MAX: Final = 20_000
"""Several times what a run needs: one that takes more goes round in circles."""
ENDS_WITHIN_S: Final = 1500.0
"""After the last fault everything must have ended by then."""
LOOK_S: Final = 3.0
"""Between two looks at the clock of whoever waits for a time."""


class Ended(NamedTuple):
    """`violation` is "" for a run in which everything was as it must be."""

    violation: str
    trace: tuple[str, ...]
    steps: int
    seconds: float


class Run:
    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.trace: list[str] = []
        self.loop = loop = SimLoop(random.Random(f"{scenario.seed}/schedule"), STEPS_MAX)
        self.truth = Truth(self.told, lambda: loop.now_us)
        self.store = Store(loop, dict(scenario.appends), self.truth.landed)
        self.world = World(loop, self.truth, dict(scenario.sends))
        self.faults = Faults(loop, scenario, self._start)
        self.people = People(loop, self.store, scenario, self.told)
        self.store.told = self.world.told = self.faults.told = self.told
        self.store.taken = self.world.used = loop.asked = self.faults.at
        self.world.answers = self.people.job_ended
        self.truth.on_escalated, self.truth.said.on_asked = self.people.escalated, self.people.asked
        loop.before_step = self.faults.before_step
        self._blobs = BlobStore(Blobs(), "sim:")
        self._entropy = SeededEntropy(scenario.seed)
        self._starts: dict[str, int] = {}
        self._watched: dict[Process, Any] = {}
        self._failed: BaseException | None = None
        loop.set_exception_handler(self._error)

    def told(self, line: str) -> None:
        self.trace.append(f"{self.loop.time():9.3f} {line}")

    def go(self) -> Ended:
        loop, violation = self.loop, ""
        loop.world.context.run(self._begin)
        try:
            loop.run_until_complete(loop.world.context.run(loop.create_task, self._watch()))
        except Exception as found:  # noqa: BLE001 - whatever ends a process is shown as what goes wrong
            said = f"{found}" if isinstance(found, Violation | Stalled) else f"{type(found).__name__}: {found}"
            violation = f"{said}: {self.truth.left()}" if isinstance(found, Stalled) else said
            self.told(f"WRONG: {violation}")
        finally:
            ended = Ended(violation, tuple(self.trace), loop.steps, loop.time())
            loop.discard()
        return ended

    def _begin(self) -> None:
        scenario = self.scenario
        for n in range(len(scenario.work)):
            self.truth.trajectories[f"t{n}"] = Known()
            self._start(f"t{n}")
        for n in range(scenario.dispatchers):
            self._start(f"d{n}")
        for n in range(scenario.routers):
            self._start(f"r{n}")
        if scenario.trims:
            self._start("k0")
        self.people.begin()

    async def _watch(self) -> None:
        """The run is over when everything has ended; it must be, some time after the last fault."""
        quiet_s: float | None = None
        while True:
            await asyncio.sleep(1.0)
            self._raise()
            if self.truth.settled(self.scenario.person):
                await asyncio.sleep(2 * GRACE_S)  # what is still on its way lands
                self._raise()
                for process, dispatcher in self._watched.items():
                    if process.alive and not process.frozen and not follows_the_log(dispatcher, self.store):
                        raise Violation(f"{process.name} follows something else than the log says")
                return
            if self.loop.time() > ENDS_WITHIN_S:
                self.faults.give_up()
            calm = self.faults.over
            quiet_s = None if not calm else quiet_s if quiet_s is not None else self.loop.time()
            if quiet_s is not None and self.loop.time() - quiet_s > ENDS_WITHIN_S:
                raise Violation(f"nothing comes to its end: {self.truth.left()}")

    def _raise(self) -> None:
        if self._failed is not None:
            raise self._failed

    def _error(self, loop: Any, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if self._failed is None:
            self._failed = error if isinstance(error, BaseException) else RuntimeError(context["message"])

    def _start(self, name: str) -> None:
        self._starts[name] = start = self._starts.get(name, 0) + 1
        skew_us = round(self.loop.chance.uniform(-SKEW_S_MAX, SKEW_S_MAX) * 1_000_000)
        process = self.faults.running[name] = self.loop.process(f"{name}#{start}", skew_us)
        work: Any = {"t": self._own, "d": self._dispatch, "r": self._route, "k": self._trim}[name[0]]
        process.start(self._guarded(lambda: work(process, int(name[1:]))))

    async def _guarded(self, work: Callable[[], Any]) -> None:
        """`work` makes its coroutine only now: a task may be ended before it began."""
        try:
            await work()
        except Exception as error:  # noqa: BLE001 - whatever ends a process is shown at the end of the run
            if self._failed is None:
                self._failed = error

    def _own(self, process: Process, number: int) -> Any:
        work = self.scenario.work
        return Owner(
            process,
            self.store,
            self.truth,
            entropy=self._entropy,
            blobs=self._blobs,
            tools=self.world.tools,
            name=f"t{number}",
            peer=f"t{(number + 1) % len(work)}",
            turns=work[number],
            checkpoints=self.scenario.checkpoints,
        ).run()

    def _dispatch(self, process: Process, number: int) -> Any:
        return dispatch(
            process,
            self.store,
            self.world.tools,
            entropy=self._entropy,
            name="d" if self.scenario.one_name else f"d{number}",
            moves=self.faults.moves,
            watched=self._watched,
            told=self._complained(process),
            paused=self._paused,
        )

    def _route(self, process: Process, number: int) -> Any:
        return route(process, self.store)

    def _trim(self, process: Process, number: int) -> Any:
        return Trimmer(process, self.store, self.scenario.trims).run()

    def _paused(self, process: Process, dispatcher: Any) -> Callable[[str], bool]:
        """Whether the process takes a tool for paused now."""
        return lambda tool: False

    def _complained(self, process: Process) -> Callable[[str], None]:
        return lambda line: self.told(f"{process.name} {line}")


def run(scenario: Scenario) -> Ended:
    with _decoded_once(), patch.object(settle, "WAIT_STEP_S", LOOK_S):
        return Run(scenario).go()


@contextmanager
def _decoded_once() -> Iterator[None]:
    """The same bytes are read again and again by everybody, and decode to the same."""
    decode: Any = codec._decode
    known: dict[Any, Any] = {}

    def once(*read: Any) -> Any:
        found = known.get(read)
        if found is None:
            found = known[read] = decode(*read)
        return found

    with patch.object(codec, "_decode", cast(Any, once)):
        yield
