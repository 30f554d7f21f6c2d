"""A session: everything an agent does, answered from its record while there is one, live past its end (DESIGN §7).

The program runs from its beginning each time; what it asks for is matched with what is recorded. So a program
that was killed goes on where it was: no model is called again for a recorded reply, no effect happens again.
Nothing may reach a decision but through the session: clock, randomness, files and other services are read with
`now_us`, `random`, `uuid` and `step`.

Calls and steps of one turn may run side by side. They are awaited before the next context, model call or end.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar, overload

import orjson

from tracklog.producers.asked import Asked
from tracklog.producers.assembly import Message
from tracklog.producers.beginning import begin, begin_fork, go_on, start_of
from tracklog.producers.bodies import json_of
from tracklog.producers.bound import Bound
from tracklog.producers.calls import Calls, Result
from tracklog.producers.checkpoints import Checkpoints
from tracklog.producers.contexts import Contexts
from tracklog.producers.fork_start import Fork
from tracklog.producers.importers.transcript import spoken_message
from tracklog.producers.in_force import InForce
from tracklog.producers.journal import rows_of
from tracklog.producers.models import ModelAnswer, ModelRequest, OnToken, Reply, with_call_ids
from tracklog.producers.notebook import Notebook
from tracklog.producers.readings import Readings
from tracklog.producers.record import JSON, TEXT, Record
from tracklog.producers.reply import replied
from tracklog.producers.sameness import same_end, same_sent
from tracklog.producers.setup import Setup
from tracklog.producers.snapshot import Recall
from tracklog.producers.spawning import Children, ChildResult
from tracklog.producers.spend import exhausted
from tracklog.producers.timers import Timers
from tracklog.producers.tools import Tool
from tracklog.schemas import events as ev
from tracklog.schemas.errors import SessionMisused
from tracklog.schemas.values import NO_BUDGETS, Budgets, Ending, ToolCall

__all__ = ["ChildResult", "Reply", "Result", "Session"]

T = TypeVar("T")


class Session:
    """Opened by `durable` and by `replay`. Its methods are called from one event loop."""

    def __init__(
        self,
        setup: Setup,
        record: Record,
        calls: Calls,
        *,
        strict: bool = False,
        fork: Fork | None = None,
        checkpoints: Checkpoints | None = None,
    ) -> None:
        self._setup = setup
        self._record = record
        self._calls = calls
        self._fork = fork
        self._notebook = Notebook(record, checkpoints)
        self._messages: tuple[Mapping[str, Any], ...] | None = None
        self._in_force = InForce(setup, record, strict=strict)
        self._bound = Bound(self.call_tool)
        self._timers = Timers(record, self._notebook)
        sandboxed = fork is not None and not fork.takes_over
        self.children = Children(setup, record, self._notebook, sandboxed=sandboxed)
        self._contexts = Contexts(record, self._in_force, self._notebook, self._timers)
        self._replies = 0
        self._readings = Readings(setup, record, self._notebook.journal)
        self.over = False
        """True when the end was reached."""
        self.memory: Any = None
        """What the last finished turn left (see `finish_turn`); None for a run that begins, or goes through it all."""
        self.notes: tuple[str, ...] = ()
        """What was not as it should be when the session was opened, in words."""

    @property
    def trajectory_id(self) -> str:
        return self._record.trajectory_id

    @property
    def turn(self) -> int:
        """The number of the last context; 0 before the first."""
        return self._record.turn

    @property
    def live(self) -> bool:
        """True when everything recorded was given out: what is asked for now happens."""
        return self._record.cursor.done

    @property
    def fired(self) -> tuple[str, ...]:
        """Timers that are due with the last context."""
        return self._timers.fired

    @property
    def prompt(self) -> str | None:
        """The prompt for the next context: the recorded one inside the record, then the one of the setup."""
        return self._in_force.shown.prompt

    @property
    def used_up(self) -> str:
        """Which budget allows no further turn, in words; "" for none. Time is looked at before calls only."""
        return exhausted(self._setup.limits, self._calls.tally.before_turn(self.turn))

    async def start(self, recall: Recall | None = None) -> None:
        """Records what is to be done, by which versions of what. Called by whoever opens the session.

        With `recall` it goes on where a turn was finished, and the record answers from there on.
        """
        body = await start_of(self._setup, self._record)
        if recall is None:
            ext = None if self._setup.child_of is None else self._setup.child_of.ext
            seq = await begin(self._record, body, self._notebook.checkpoints, ext)
            if self._fork is not None:
                await begin_fork(self._record, body, self._fork, self._in_force)
        else:
            seq = go_on(self._record, body)
            self._recall(recall)
        await self._in_force.open(seq)
        self._calls.rulings.stands = lambda: not self._in_force.own_tools

    async def finish_turn(self, memory: Any) -> None:
        """Ends a turn of a program that goes on from `memory` (JSON) alone; a checkpoint may be taken here.

        A session that is opened with `from_checkpoint` gives the memory of the last checkpoint back, and answers
        what is recorded after it. Everything that runs side by side is over by now. Raises InvalidEvent for a memory
        that is not JSON, BlobError, WorkspaceError.
        """
        if not self.over:
            await self._notebook.finish_turn(memory, self._replies, self._calls.tally.given, self._calls.repeats.kept)

    async def checkpoint(self) -> bool:
        """Keeps files and memory as they are now; False when nothing is new since the last checkpoint.

        Inside the record, and in a session without a workspace or a memory, there is nothing to keep. Raises
        BlobError, WorkspaceError.
        """
        return not self.over and await self._notebook.checkpoint()

    async def build_context(self, messages: Sequence[Message]) -> None:
        """Begins a turn: what the model is about to see, all of it, in the chat-completions form.

        A message that no event holds yet is recorded as said. Raises Diverged when the context is another one
        than at this point of the record, InvalidEvent for what is no message.
        """
        self._messages = await self._contexts.build(messages)

    async def call_model(self, *, on_token: OnToken | None = None) -> Reply:
        """The model's reply to the last context: the recorded one, or a new one. Raises ModelError, Diverged."""
        messages, self._messages = self._messages, None
        if messages is None:
            raise SessionMisused("a model call without a context", hint="await session.build_context(messages) first")

        async def ask() -> ModelAnswer:
            tools = await self._in_force.definitions(self._contexts.offered)
            request = ModelRequest(messages, tools, self._in_force.shown.versions.sampling, self._replies)
            return await self._in_force.model.reply(request, on_token=on_token)

        _, reply = await self._reply(ask)
        return reply

    async def exchange(
        self,
        messages: Sequence[Message],
        asked: Asked,
        ask: Callable[[tuple[Mapping[str, Any], ...]], Awaitable[ModelAnswer]],
    ) -> tuple[ev.ModelReplied, Reply]:
        """A context, whose hash covers the tools asked for, and the reply to it: as recorded, or as `ask` gives it.

        Raises as build_context and call_model do, DriftRefused, and what `ask` raises.
        """
        self._bound.check()
        plain = await self._contexts.build(messages, asked)
        return await self._reply(lambda: ask(plain))

    async def _reply(self, ask: Callable[[], Awaitable[ModelAnswer]]) -> tuple[ev.ModelReplied, Reply]:
        with self._record.strand.ordered("a model call"):
            found = await self._record.next_ordered(ev.ModelReplied, "a model call")
            body, seq = (found.body, found.seq) if found is not None else await self._ask(ask)
        message = orjson.loads(await self._record.whole(body.reply))
        if found is not None and self._record.asking is not None:
            await self._record.asking.model(found, message, ask)
        self._replies += 1
        self._calls.tally.replied(body)
        self._bound.propose(body.tool_calls)
        for call in body.tool_calls:
            self._notebook.note("proposed", call.call_id)
        self._calls.propose(body.tool_calls, seq)
        named = self._record.rule.message(seq, with_call_ids(message, body.tool_calls))
        self._contexts.know(named, seq)
        return body, Reply(named, body.tool_calls, body.stop_reason)

    def wrap(self, client: Any, **options: Any) -> Any:
        """An `openai.AsyncOpenAI` or `anthropic.AsyncAnthropic` that replies through this session; see `wrapped`."""
        from tracklog.producers.wrapped import wrapped

        return wrapped(self, client, **options)

    def bind(self, tool: Tool) -> Callable[..., Awaitable[str]]:
        """The tool as an async function for a framework that calls tools itself; see Bound."""
        return self._bound.bind(tool)

    async def authorize(self, call: ToolCall) -> bool:
        """Whether the policy allows a call of the last reply, recorded. `call_tool` asks by itself."""
        with self._record.strand.beside("an authorization"):
            return await self._calls.authorize(call)

    async def call_tool(self, call: ToolCall) -> Result:
        """Makes a call of the last reply: what became of it, for the model to see; whatever the tool does.

        Raises ApprovalNeeded while nobody has decided about a held call, PersonNeeded or StillInDoubt when nobody
        knows whether it happened, Diverged, Fenced.
        """
        with self._record.strand.beside("a call"):
            result, seq = await self._calls.make(call)
        plain = result.message
        said = self._record.rule.message(seq, plain)
        self._contexts.know(said, seq)
        return result if said is plain else replace(result, said=said)

    @overload
    async def step(self, name: str, fn: Callable[[], Awaitable[T]]) -> T: ...

    @overload
    async def step(self, name: str, fn: Callable[[], T]) -> T: ...

    async def step(self, name: str, fn: Callable[[], Any]) -> Any:
        """Runs `fn` once and records what it returns (JSON); later the recorded value is given.

        For readings, not for effects: a step that was killed before it was recorded runs again. What it raises
        is not recorded.
        """
        return await self._readings.step(name, fn)

    async def receive(self, peer: str | None = None) -> Message:
        """The next message that somebody sent, for the next context; waits for it as long as the timing says.

        With `peer` the next one from that trajectory or person. Raises NothingReceived: leave with it, and the
        trajectory goes on when a message has come.
        """
        asked = "a message" if peer is None else f"a message from {peer}"
        with self._record.strand.ordered(asked):
            found = await self._record.received(asked, self._setup.timing.receive_wait_s, peer)
        self._notebook.note("heard", found.body.peer)
        plain = spoken_message(found.body.role, await self._record.whole(found.body.message))
        message = self._record.rule.message(found.seq, plain)
        self._contexts.know(message, found.seq)
        return message

    async def send(self, peer: str, text: str) -> None:
        """Records a message to somebody; the router brings it to them, unless this is a fork beside its origin."""
        body = ev.MessageSent(peer=peer, message=await self._record.body(text, TEXT))
        with self._record.strand.ordered("a message to be sent"):
            await self._record.ordered(body, f"a message to {peer}", check=same_sent, ext=self.children.withheld)

    async def spawn(
        self, agent: str, task: str, *, labels: Mapping[str, str] | None = None, budgets: Budgets = NO_BUDGETS
    ) -> str:
        """Begins a child run of an agent that workers have, and returns its id at once.

        It takes a router (`tracklog route`). The child is cancelled when this run is cancelled or ends without having
        heard of its end. Raises SessionMisused for more children, or deeper ones, than the setup allows.
        """
        return await self.children.spawn(agent, task, labels=labels, budgets=budgets)

    async def child_result(self, child_id: str) -> ChildResult:
        """How a child run ended; waits for it as for a message.

        Raises ChildAwaited: leave with it, and the trajectory goes on when the child has ended.
        """
        return await self.children.result(child_id, self._setup.timing.receive_wait_s)

    async def sleep_turns(self, turns: int, name: str) -> None:
        """Sets a timer by the agent's own turns: `name` is in `fired` with the context of that turn."""
        await self._timers.set(turns, name)

    async def sleep(self, seconds: float, name: str = "sleep") -> None:
        """Returns when so many seconds have passed since this was first asked for, however often it was killed.

        It takes a router (`tracklog route`). Raises TimerAwaited when it takes longer than a session waits for a
        message: leave with it, and the trajectory goes on at that time.
        """
        setup = self._setup

        def until_us() -> int:
            return setup.clock.now_us() + round(seconds * 1_000_000)

        await self._timers.sleep(until_us, name, setup.timing.receive_wait_s)

    async def now_us(self) -> int:
        """The time, in microseconds since 1970 UTC."""
        return await self._readings.now_us()

    async def random(self) -> float:
        """A number from 0 to below 1."""
        return await self._readings.random()

    async def uuid(self) -> uuid.UUID:
        """A random id."""
        return await self._readings.uuid()

    async def compact(self, first_turn: int, last_turn: int, summarize: Callable[[], Awaitable[str]]) -> Message:
        """A message that stands for the messages of these turns: the summary as it was once made, or made now."""
        return await self._contexts.compact(first_turn, last_turn, summarize)

    async def end(self, result: object = None, *, ending: Ending = Ending.COMPLETED, reason: str = "") -> None:
        """Ends the trajectory for good; it has ended when this returns. `result` is JSON.

        Raises InvalidEvent while a call has no outcome, Fenced, Diverged.
        """
        body = None if result is None else await self._record.body(json_of("the result", result), JSON)
        ended = ev.TaskEnded(ending=ending, result=body, reason=reason)
        with self._record.strand.ordered("the end"):
            await self._notebook.at_end()
            seq = await self._record.ordered(ended, "the end of the task", check=same_end)
            await self._record.pen.confirm(seq)
        self.over = True

    def close(self) -> None:
        """Forgets the session in this task. Called by whoever opened it."""
        self._record.strand.over()

    def _recall(self, recall: Recall) -> None:
        """Takes up what was known where a turn was finished."""
        self._contexts.recall(recall.rows)
        self._in_force.told = len(rows_of(recall.rows, "told"))
        self._calls.recall(call_id for (call_id,) in rows_of(recall.rows, "proposed"))
        self._calls.repeats.recall(recall.until, recall.repeated)
        self._readings.recall(rows_of(recall.rows, "observed"))
        self._timers.recall(rows_of(recall.rows, "timer"), recall.turn)
        self.children.recall(rows_of(recall.rows, "child"))
        for row in rows_of(recall.rows, "heard"):
            self._record.cursor.heard(row[0] if row else None)
        self._replies, self._record.turn = recall.replies, recall.turn
        if recall.seen is not None:
            self._record.strand.saw(recall.seen)
        self.memory = recall.memory

    async def _ask(self, ask: Callable[[], Awaitable[ModelAnswer]]) -> tuple[ev.ModelReplied, int]:
        given = await self._fork.answer(self._record, self.turn) if self._fork is not None else None
        self._record.check_live("a model call")
        body = await replied(self._record, self._calls, given if given is not None else await ask())
        return body, await self._record.write(body)
