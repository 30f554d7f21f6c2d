"""One run of a scenario, from its first step until everything has ended as it must or something is wrong."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, cast
from unittest.mock import patch

from tests.simulation.log import SimLog, Store
from tests.simulation.loop import Process, SimLoop, Stalled
from tests.simulation.owner import own
from tests.simulation.scenario import Fault, Scenario
from tests.simulation.tools import GRACE_S, SKEW_S_MAX, World
from tests.simulation.truth import TOPICS, Call, Known, Truth, Violation
from tracklog.consumers.dispatch.dispatcher import Dispatcher
from tracklog.consumers.dispatch.follow import NEW, follow
from tracklog.infra.clock import SeededEntropy
from tracklog.infra.log.port import Log
from tracklog.infra.settings import DispatchSettings, LoopSettings
from tracklog.producers.post import Poster
from tracklog.schemas import codec
from tracklog.schemas.codec import decode_event
from tracklog.schemas.errors import AppendUnknown
from tracklog.schemas.inbox import Cancel, Settlement
from tracklog.schemas.values import Body, InboxId, ResultStatus

STEPS_MAX: Final = 12_000
"""Several times what a run needs: one that takes more goes round in circles."""
ENDS_WITHIN_S: Final = 1500.0
"""After the last fault everything must have ended by then."""
BATCH: Final = 20
BACK_S: Final = 3.0
"""How long it takes until a process that was killed is started again, at most."""


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
        self.loop = SimLoop(random.Random(f"{scenario.seed}/schedule"), STEPS_MAX)
        self.truth = Truth(self.told)
        self.store = Store(self.loop, dict(scenario.appends), self.truth.landed)
        self.world = World(self.loop, self.truth, dict(scenario.sends))
        self.store.told = self.world.told = self.told
        self.truth.on_escalated = self._escalated
        self._entropy = SeededEntropy(scenario.seed)
        self._names: dict[str, Process] = {}
        self._starts: dict[str, int] = {}
        self._gone: set[str] = set()
        self._moves: set[Process] = set()
        self._watched: dict[Process, Dispatcher] = {}
        self._failed: BaseException | None = None
        self._faults = list(scenario.faults)
        self.loop.set_exception_handler(self._error)

    def told(self, line: str) -> None:
        self.trace.append(f"{self.loop.time():9.3f} {line}")

    def go(self) -> Ended:
        loop, violation = self.loop, ""
        loop.before_step = self._before_step
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
        for n in range(len(self.scenario.work)):
            self.truth.trajectories[f"t{n}"] = Known()
            self._start(f"t{n}")
        for n in range(self.scenario.dispatchers):
            self._start(f"d{n}")
        for n, seconds in self.scenario.cancels:
            body = Cancel(by="person")
            self.loop.later(seconds, self._say, f"t{n}", body, InboxId(source=f"cancel/{n}", seq=0))

    async def _watch(self) -> None:
        """The run is over when everything has ended; it must be, some time after the last fault."""
        quiet_s: float | None = None
        while True:
            await asyncio.sleep(1.0)
            if self._failed is not None:
                raise self._failed
            if self.truth.settled(self.scenario.person):
                await asyncio.sleep(2 * GRACE_S)  # what is still on its way lands
                if self._failed is not None:
                    raise self._failed
                self._compare()
                return
            calm = not self._faults and not any(one.frozen for one in self.loop.processes if one.alive)
            if not calm and self.loop.time() > ENDS_WITHIN_S:
                self._faults.clear()  # they were for steps that did not come
            quiet_s = None if not calm else quiet_s if quiet_s is not None else self.loop.time()
            if quiet_s is not None and self.loop.time() - quiet_s > ENDS_WITHIN_S:
                raise Violation(f"nothing comes to its end: {self.truth.left()}")

    def _error(self, loop: Any, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if self._failed is None:
            self._failed = error if isinstance(error, BaseException) else RuntimeError(context["message"])

    # -- processes

    def _start(self, name: str) -> None:
        self._starts[name] = start = self._starts.get(name, 0) + 1
        skew_us = round(self.loop.chance.uniform(-SKEW_S_MAX, SKEW_S_MAX) * 1_000_000)
        process = self._names[name] = self.loop.process(f"{name}#{start}", skew_us)
        if name.startswith("t"):
            work = own(process, self.store, self._entropy, name, self.scenario.work[int(name[1:])])
        else:
            work = self._dispatch(process, name)
        process.start(self._guarded(work))

    async def _guarded(self, work: Any) -> None:
        try:
            await work
        except Exception as error:  # noqa: BLE001 - whatever ends a process is shown at the end of the run
            if self._failed is None:
                self._failed = error

    async def _dispatch(self, process: Process, name: str) -> None:
        """The real dispatcher; only the thread of its partition loop is played here."""
        log = cast(Log, SimLog(self.store))
        dispatcher = Dispatcher(
            log,
            TOPICS,
            self.world.tools(),
            blobs=cast(Any, None),
            clock=process,
            entropy=self._entropy,
            name="d" if self.scenario.one_name else name,
            settings=DispatchSettings(grace_s=GRACE_S),
            loop_settings=LoopSettings(),
            told=self._complained(process),
        )
        owner: Any = dispatcher.partition_loop._owner
        self._watched[process] = dispatcher
        cast(Any, dispatcher.pauses).holds = self._paused(process, dispatcher)
        at = await asyncio.to_thread(owner.restore, 0)
        while True:
            if process in self._moves:
                self._moves.discard(process)
                owner._known.pop(0, None)
                await dispatcher._give_up(0, 5.0)
                at = await asyncio.to_thread(owner.restore, 0)
            await self.store.news(TOPICS.events, at)
            records = self.store.of(TOPICS.events)[at : at + self.loop.chance.randint(1, BATCH)]
            at += len(records)
            owner.fold(0, records, at)
            await asyncio.sleep(self.loop.chance.uniform(0.0, 0.05))

    def _paused(self, process: Process, dispatcher: Dispatcher) -> Callable[[str], bool]:
        """Whether the process takes a tool for paused now."""
        return lambda tool: False

    def _complained(self, process: Process) -> Callable[[str], None]:
        return lambda line: self.told(f"{process.name} {line}")

    # -- what goes wrong

    def _before_step(self, step: int) -> None:
        while self._faults and self._faults[0].step <= step:
            self._apply(self._faults.pop(0))

    def _apply(self, fault: Fault) -> None:
        process = self._names.get(fault.target)
        if process is None or not process.alive or fault.target in self._gone:
            return
        self.told(f"{fault.what} {process.name}{f' for {fault.seconds:.1f} s' if fault.seconds else ''}")
        if fault.what in ("kill", "gone"):
            process.kill()
        if fault.what == "kill":
            self.loop.later(self.loop.chance.uniform(0.0, BACK_S), self._start, fault.target)
        elif fault.what == "gone":
            self._gone.add(fault.target)
        elif fault.what == "move":
            self._moves.add(process)
        elif fault.what in ("freeze", "replace"):
            process.frozen = True
            self.loop.later(fault.seconds, self._wake, process)
        if fault.what == "replace":
            self.loop.later(self.loop.chance.uniform(0.0, BACK_S), self._start, fault.target)

    def _wake(self, process: Process) -> None:
        if process.frozen:
            self.told(f"wake {process.name}")
        process.frozen = False

    # -- people

    def _escalated(self, call: Call) -> None:
        if self.scenario.person:
            self.loop.later(self.loop.chance.choice((0.0, 2.0, 60.0)), self._settle, call)

    def _settle(self, call: Call) -> None:
        """A person looks whether it happened, and says so."""
        status = ResultStatus.OK if call.effects else ResultStatus.EXPIRED
        body = Settlement(call_id=call.name, intent_hash=call.hash, by="person", status=status, output=Body.of(""))
        self.told(f"a person settles {call.name}: {status.value}")
        self._say(call.trajectory_id, body, InboxId(source=f"person/{call.name}", seq=0))

    def _say(self, trajectory_id: str, body: Any, inbox_id: InboxId) -> None:
        self.loop.create_task(self._post(trajectory_id, body, inbox_id), context=self.loop.world.context)

    async def _post(self, trajectory_id: str, body: Any, inbox_id: InboxId) -> None:
        poster = Poster(cast(Log, SimLog(self.store)), TOPICS, clock=self.loop.world)
        while True:
            try:
                await poster.post(trajectory_id, body, inbox_id=inbox_id)
                return
            except AppendUnknown:
                continue

    # -- folds

    def _compare(self) -> None:
        """Every dispatcher that goes on follows what a fold from the beginning gives."""
        events = [decode_event(one.key, one.value, one.headers) for one in self.store.of(TOPICS.events)]
        for process, dispatcher in self._watched.items():
            known: Any = dispatcher.partition_loop._owner
            if not process.alive or process.frozen or 0 not in dispatcher._partitions:
                continue
            wanted: dict[bytes, Any] = {}
            for event in events[: dispatcher._partitions[0].position]:
                key = event.envelope.trajectory_id.encode()
                wanted[key] = follow(wanted.get(key, NEW), event)
            if wanted != known._known[0]:
                raise Violation(f"{process.name} follows something else than the log says")


def run(scenario: Scenario) -> Ended:
    with _decoded_once():
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

    with patch.object(codec, "_decode", once):
        yield
