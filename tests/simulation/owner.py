"""The owner of a trajectory: a real session, under a program that calls tools, sleeps, sends and hears messages.

It is taken up again as a worker does it: when something has come into the inbox, and after a crash.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final, cast

from tests.simulation.log import SimLog, Store
from tests.simulation.loop import Process
from tests.simulation.scenario import OTHERS
from tests.simulation.tools import GRACE_S
from tests.simulation.truth import TOPICS, Truth, Violation
from tracklog.infra.blobs import BlobStore
from tracklog.infra.clock import Clock, Entropy
from tracklog.infra.log.port import Log
from tracklog.producers.deliveries import Deliveries
from tracklog.producers.mailbox import Incoming, LogMailbox
from tracklog.producers.models import ModelAnswer, ModelRequest, calls_of
from tracklog.producers.opening import opened
from tracklog.producers.policy import ALLOW, Decision, Situation, hold
from tracklog.producers.producer import EventProducer
from tracklog.producers.session import Session
from tracklog.producers.settle import Timing
from tracklog.producers.setup import Setup
from tracklog.producers.spans import Spans
from tracklog.producers.tools import Tool, ToolSet
from tracklog.producers.track import Track
from tracklog.producers.turn import call_all
from tracklog.producers.view import LogView
from tracklog.schemas.errors import (
    Cancelled,
    ClaimLost,
    Fenced,
    InvalidEvent,
    LogUnavailable,
    PersonNeeded,
    SessionWaits,
    StillInDoubt,
    TrajectoryEnded,
    Undecided,
)
from tracklog.schemas.lifecycle import Parked
from tracklog.schemas.limits import ACCEPTED_WINDOW
from tracklog.schemas.values import Budgets, ToolCall

TIMING: Final = Timing(
    start_within_s=30.0,
    grace_s=GRACE_S,
    receive_wait_s=1.0,
    dispatch_within_s=200.0,
    outcome_wait_s=1.0,
)
FAILURES_A_DAY: Final = 1e9
"""So that a checkpoint is due after every turn."""
SLEEP_S: Final = 20.0
EXPIRES_S: Final = 30.0
EDITED: Final = '{"edited":true}'
APPROVERS: Final = (("ada", "bob"), ("bob", "cyd"))
"""Who may decide about a call as the model proposed it, and once it was edited."""


class Box(LogMailbox):
    """Of all sessions of an owner. As in a worker, what one took is there for the next, which knows what stands."""

    def __init__(self, log: Log, topic: str, trajectory_id: str, *, clock: Clock) -> None:
        super().__init__(log, topic, trajectory_id, clock=clock)
        self._aside: list[Incoming] = []

    def took(self, one: Incoming) -> None:
        super().took(one)
        self._aside.append(one)

    def put_back(self) -> None:
        self._waiting = sorted([*self._aside, *self._waiting], key=lambda one: one.position)
        self._aside = []


class View(LogView):
    """Reads in the loop's own way instead of on a thread."""

    def __init__(self, log: Log, process: Process) -> None:
        self._log, self._topic, self._clock = log, TOPICS.events, process
        self._window, self._timeout_s = 1024 + ACCEPTED_WINDOW, 60.0
        self._tracks, self._starts, self._partitions, self._reader = {}, {}, 0, None
        self._spans, self._indices = Spans(), deque()
        self._firsts, self._lost = {}, set()

    async def refresh(self, trajectory_ids: Iterable[str], *, record: bool = False) -> dict[str, Track]:
        ids = frozenset(trajectory_ids)
        deadline_s = self._clock.monotonic_s() + self._timeout_s
        recorded = ids if record else frozenset[str]()
        tracks = dict(await asyncio.to_thread(self._read_back, ids, recorded, deadline_s))
        for track in tracks.values() if not record else ():
            track.fold()
        return tracks

    async def close(self) -> None: ...


class Producer(EventProducer):
    async def __aenter__(self) -> Producer:
        self._level = "fsync"
        self._deliveries = Deliveries(asyncio.get_running_loop())
        self._view = View(self._log, cast(Process, self.clock))
        return self


class Held:
    """The policy of the simulation: tools whose name says so are held."""

    version: Final = "1"
    budgets: Final = Budgets()

    def decide(self, call: ToolCall, tool: Tool, situation: Situation) -> Decision:
        if not tool.name.endswith("_held"):
            return ALLOW
        return hold("held", may_approve=APPROVERS[call.arguments == EDITED], expires_in_s=EXPIRES_S)


class Script:
    """A model that asks for the tools of each turn."""

    name = "script"

    def __init__(self, trajectory_id: str, turns: tuple[tuple[str, ...], ...]) -> None:
        self._name, self._turns = trajectory_id, turns

    async def reply(self, request: ModelRequest, *, on_token: Any = None) -> ModelAnswer:
        number = request.replies_before
        assert number is not None
        tools = [one for one in self._turns[number] if one not in OTHERS]
        calls = [
            {
                "id": f"{self._name}.{number}.{at}.{tool}",
                "type": "function",
                "function": {"name": tool, "arguments": "{}"},
            }
            for at, tool in enumerate(tools)
        ]
        message = (
            {"role": "assistant", "content": None, "tool_calls": calls}
            if calls
            else {"role": "assistant", "content": "-"}
        )
        return ModelAnswer(message=message, tool_calls=calls_of(message), stop_reason="stop", served="script")


class Owner:
    """Of one trajectory, in one start of a process."""

    def __init__(
        self,
        process: Process,
        store: Store,
        truth: Truth,
        *,
        entropy: Entropy,
        blobs: BlobStore,
        tools: ToolSet,
        name: str,
        peer: str,
        turns: tuple[tuple[str, ...], ...],
        checkpoints: bool,
    ) -> None:
        self._process, self._store, self._truth = process, store, truth
        self._checkpoints = checkpoints
        self._log = cast(Log, SimLog(store))
        self._entropy = entropy
        self._name, self._peer, self._turns = name, peer, turns
        self._mailbox = Box(self._log, TOPICS.inbox, name, clock=process)
        self._setup = Setup(
            agent="a",
            task="work",
            blobs=blobs,
            clock=process,
            entropy=entropy,
            model=Script(name, turns),
            tools=tools,
            policy=Held(),
            timing=TIMING,
            dispatches=True,
            failures_a_day=FAILURES_A_DAY,
        )

    async def run(self) -> None:
        """Until the trajectory has ended."""
        while not self._truth.trajectories[self._name].ended:
            inbox = len(self._store.of(TOPICS.inbox))
            try:
                await self._open()
            except (SessionWaits, PersonNeeded):
                await self._something_new(inbox)
            except Cancelled:
                if not self._truth.trajectories[self._name].ended:
                    await self._store.news(TOPICS.inbox, inbox)
            except (ClaimLost, Fenced, Undecided, LogUnavailable, InvalidEvent, StillInDoubt, TrajectoryEnded) as error:
                # InvalidEvent, TrajectoryEnded: what was read back goes on with what the next owner wrote
                self._check(error)
                await asyncio.sleep(self._process.loop.chance.uniform(0.1, 3.0))

    async def _something_new(self, opened_at: int) -> None:
        """As a worker's roster has it: what the session took wakes nobody, unless it was let go of as `left`."""
        mailbox = self._mailbox
        untaken = any(one.position >= opened_at for one in mailbox.waiting())
        if self._truth.trajectories[self._name].parked != Parked.LEFT and not untaken:
            await self._store.news(TOPICS.inbox, max(opened_at, mailbox._next))

    async def _open(self) -> None:
        producer = Producer(self._log, topics=TOPICS, clock=self._process, entropy=self._entropy)
        self._mailbox.put_back()
        async with (
            producer,
            opened(
                producer,
                self._name,
                log=self._log,
                setup=self._setup,
                topics=TOPICS,
                owner=self._process.name,
                mailbox=self._mailbox,
                from_checkpoint=self._checkpoints,
            ) as session,
        ):
            await self._program(session)

    def _check(self, error: Exception) -> None:
        """Nobody is fenced but by another owner, and the log always decides in time."""
        owner = self._truth.trajectories[self._name].owner
        if isinstance(error, Fenced) and owner == self._process.name:
            raise Violation(f"{self._process.name} was fenced, and nobody took {self._name} over: {error}")
        if isinstance(error, Undecided) and not self._process.awake_s:
            raise Violation(f"{self._process.name} never learned what became of its appends: {error}")

    async def _program(self, session: Session) -> None:
        memory = session.memory or {"messages": [{"role": "user", "content": "work"}], "turn": 0}
        while memory["turn"] < len(self._turns):
            memory = await self._turn(session, memory["messages"], memory["turn"])
            if self._checkpoints:
                await session.finish_turn(memory)
        await session.end("done")

    async def _turn(self, session: Session, messages: list[Any], number: int) -> dict[str, Any]:
        """What the next turn goes on with."""
        others: dict[str, Callable[[int], Any]] = {
            "sleep": lambda number: session.sleep(SLEEP_S, f"nap {number}"),
            "send": lambda number: self._send(session, number),
            "receive": lambda _: session.receive(),
        }
        for item in self._turns[number]:
            if item in others:
                said = await others[item](number)
                messages += [said] if item == "receive" else []
        await session.build_context(messages)
        reply = await session.call_model()
        messages.append(reply.message)
        if reply.tool_calls:
            messages += [result.message for result in await call_all(session, reply)]
        return {"messages": messages, "turn": number + 1}

    async def _send(self, session: Session, number: int) -> None:
        for one in ("first", "second"):
            await session.send(self._peer, f"{one} message of turn {number}")
