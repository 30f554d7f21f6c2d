"""What a worker does with one trajectory from when it takes it up to when it lets go of it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from tracklog.infra.blobs import BlobStore
from tracklog.infra.clock import Clock, Entropy
from tracklog.infra.log.port import Log
from tracklog.infra.log.ranges import read_range
from tracklog.infra.settings import WorkerSettings
from tracklog.producers.bodies import whole_text
from tracklog.producers.cancelling import check_cancelled, obey
from tracklog.producers.fork_start import Fork
from tracklog.producers.going_back import EXT_REASON, EXT_TAKES_OVER, end_run
from tracklog.producers.history import started_of
from tracklog.producers.leash import Leash
from tracklog.producers.model_patient import PatientModel
from tracklog.producers.opening import opened
from tracklog.producers.pen import WriterPen
from tracklog.producers.producer import EventProducer
from tracklog.producers.relay import TokenRelay
from tracklog.producers.roster import Arrival, Kept, Known, Work, known_of
from tracklog.producers.session import Session
from tracklog.producers.settle import Timing
from tracklog.producers.setup import Setup
from tracklog.producers.taking import Taking
from tracklog.producers.turn import Agent, run_turns
from tracklog.producers.versions import Drift
from tracklog.producers.worker_files import WorkerFiles, has_files
from tracklog.producers.worker_mailbox import WorkerMailbox
from tracklog.producers.writer import Takes, TrajectoryWriter
from tracklog.schemas import events as ev
from tracklog.schemas import inbox, limits
from tracklog.schemas.codec import decode_inbox
from tracklog.schemas.errors import Cancelled, InputError, LogError, TracklogError, WriterError
from tracklog.schemas.lifecycle import STOPPED, Parked, TrajectoryStatus
from tracklog.schemas.limits import TEXT_FIELD_CHARS_MAX
from tracklog.schemas.spawn import ChildOf, spawn_ext
from tracklog.schemas.state import State
from tracklog.schemas.topics import Topics
from tracklog.schemas.values import Driver, Ending

__all__ = ["Runner"]

ENDED: Final = Known(ended=True)


class Begin(NamedTuple):
    """What a trajectory begins with; `submit` and `ext` are those of the inbox record that says so."""

    task: ev.TaskStarted
    tenant: str | None = None
    submit: Takes | None = None
    ext: Mapping[str, str] = {}

    @property
    def fork(self) -> Fork | None:
        """For one that goes on from a turn of another one."""
        origin, run = self.task.origin, self.ext.get(EXT_TAKES_OVER, "")
        return Fork(origin, self.task.inherited_turn, takes_over=run) if origin is not None and run else None

    @property
    def child_of(self) -> ChildOf | None:
        """For one that another one has spawned."""
        return ChildOf.of(self.task.parent, self.ext)

    @property
    def reason(self) -> str:
        """Why somebody asked for it."""
        return self.ext.get(EXT_REASON, "")


@dataclass(frozen=True, slots=True)
class Runner:
    """`name` is recorded as the owner; two workers of one name are told apart by the nonces of their claims."""

    log: Log
    producer: EventProducer
    topics: Topics
    agents: Mapping[str, Agent]
    blobs: BlobStore
    clock: Clock
    entropy: Entropy
    name: str
    settings: WorkerSettings
    timing: Timing = field(default_factory=Timing)
    files: WorkerFiles | None = None
    failures_a_day: float | None = None
    body_inline_bytes_max: int = limits.BODY_INLINE_BYTES_MAX
    drift: Drift | None = None
    """What happens to a run that was left with other versions; see Setup."""
    relay: TokenRelay | None = None
    """Gives on what models say while they say it; None: they are not asked to stream."""

    @property
    def grace_us(self) -> int:
        return round(self.timing.grace_s * 1_000_000)

    async def work(self, trajectory_id: str, kept: Kept, leash: Leash) -> Known | None:
        """Does what is to be done; returns where the trajectory stands then, None when that must be looked up again.

        Whatever the agent does ends here; what raises is the log, and defects.
        """
        try:
            state = (await self.producer.history(trajectory_id, from_checkpoint=self.blobs, since=kept.since)).state
            known = known_of(state, grace_us=self.grace_us)
            if known is None:
                kept.offer()
                return ENDED
            kept.learn(known)
            return await self._try(trajectory_id, kept, leash, state)
        finally:
            self.producer.forget(trajectory_id)
            if self.files is not None and leash.state is not None and leash.state.ended:
                await asyncio.to_thread(self.files.remove, trajectory_id)

    async def _try(self, trajectory_id: str, kept: Kept, leash: Leash, state: State) -> Known | None:
        try:
            return await self._do(trajectory_id, kept, leash, state)
        except (WriterError, LogError):
            return None
        except TracklogError as error:
            return await self._fail(trajectory_id, kept, str(error)[:TEXT_FIELD_CHARS_MAX])

    async def _do(self, trajectory_id: str, kept: Kept, leash: Leash, state: State) -> Known | None:
        work = kept.work(self.settings.tries_max)
        if work is Work.RUN and _cancelled(state, kept) and not state.open_intents:
            return await self._cancel(trajectory_id, kept)
        if work is Work.RUN:
            return await self._run(trajectory_id, kept, leash)
        if work is Work.NOTE:
            return await self._note(trajectory_id, kept, state.waits_for)
        if work is Work.POISON:
            writer = await self._claim(trajectory_id, None, None)
            return await self._let_go(writer, Parked.POISON, f"{state.tries} owners died on it in a row")
        return kept.known

    async def _run(self, trajectory_id: str, kept: Kept, leash: Leash) -> Known | None:
        begin = await self._start(trajectory_id, kept)
        agent = self.agents.get(begin.task.agent)
        if agent is None:
            return await self._unknown(trajectory_id, kept, begin)
        fork = begin.fork if not kept.known.started else None
        if fork is not None and fork.takes_over:
            why = await self._end_run(fork.takes_over, trajectory_id, begin.reason)
            if why:
                return await self._refuse(trajectory_id, kept, begin, why)
        takes = begin.submit if not kept.known.started else None
        if kept.known.parked in STOPPED:
            takes = _first(kept.arrivals, "Retry") or takes
        task = await asyncio.to_thread(whole_text, begin.task.task, self.blobs)
        setup = self._setup(trajectory_id, agent, task, begin, leash)
        kept.offer()
        try:
            async with self._opened(trajectory_id, kept, setup, begin.tenant, takes, leash, fork) as session:
                await run_turns(session, agent, task)
        except (WriterError, LogError):
            return None
        except Exception:  # noqa: BLE001 - durable has recorded why it was left; one run's end is not the worker's
            return self._after(leash)
        return self._after(leash)

    def _opened(
        self,
        trajectory_id: str,
        kept: Kept,
        setup: Setup,
        tenant: str | None,
        takes: Takes | None,
        leash: Leash,
        fork: Fork | None,
    ) -> AbstractAsyncContextManager[Session]:
        return opened(
            self.producer,
            trajectory_id,
            log=self.log,
            setup=setup,
            topics=self.topics,
            owner=self.name,
            tenant=tenant,
            mailbox=WorkerMailbox(kept),
            takes=takes,
            leash=leash,
            from_checkpoint=True,
            fork=fork,
        )

    def _setup(self, trajectory_id: str, agent: Agent, task: str, begin: Begin, leash: Leash) -> Setup:
        model = agent.model
        if model is not None and self.relay is not None:
            model = self.relay.of(trajectory_id, model)
        if model is not None:
            model = PatientModel(model, self.settings.model_wait_s, clock=self.clock, check=leash.check)
        return agent.setup(
            task,
            self.blobs,
            clock=self.clock,
            entropy=self.entropy,
            driver=Driver.WORKER,
            model=model,
            labels=begin.task.labels,
            on_behalf_of=begin.task.on_behalf_of,
            budgets=begin.task.budgets,
            swarm=begin.task.swarm,
            child_of=begin.child_of,
            children_max=self.settings.children_max,
            depth_max=self.settings.depth_max,
            workspace=self.files.of(trajectory_id) if self.files is not None and has_files(agent) else None,
            failures_a_day=self.failures_a_day,
            body_inline_bytes_max=self.body_inline_bytes_max,
            repeats_max=self.settings.repeats_max,
            dispatches=self.settings.dispatches,
            timing=replace(self.timing, receive_wait_s=0.0, outcome_wait_s=self.settings.outcome_wait_s),
            drift=self.drift,
        )

    async def _start(self, trajectory_id: str, kept: Kept) -> Begin:
        """What is to be done: as the Submit in the inbox says, or else the record."""
        if kept.submitted is not None:
            found = await asyncio.to_thread(self._submit_at, kept.partition, kept.submitted)
            if found is not None:
                return found
        history = await self.producer.history(trajectory_id, from_checkpoint=self.blobs)
        started = started_of(history.events)
        if started is None:
            started = started_of((await self.producer.whole_history(trajectory_id)).events)
        if started is None:
            raise InputError(f"nothing says what trajectory {trajectory_id!r} is to do", hint="submit its task again")
        return Begin(started)

    def _submit_at(self, partition: int, offset: int) -> Begin | None:
        for record in read_range(self.log, self.topics.inbox, partition, offset, offset + 1):
            submit = decode_inbox(record.key, record.value, record.headers)
            if isinstance(submit.body, inbox.Submit):
                envelope = submit.envelope
                takes = Takes(envelope.inbox_id, offset, envelope.causes, envelope.lamport)
                return Begin(submit.body.task, envelope.tenant, takes, envelope.ext)
        return None

    async def _end_run(self, trajectory_id: str, successor_id: str, reason: str) -> str:
        topic = self.topics.events
        return await end_run(self.producer, self.log, topic, trajectory_id, successor_id, reason, owner=self.name)

    async def _unknown(self, trajectory_id: str, kept: Kept, begin: Begin) -> Known | None:
        """A task that nobody here can do. One that has begun only waits for a worker that has its agent again."""
        if not self.settings.refuse_unknown:
            kept.left = True
            return kept.known
        known = ", ".join(sorted(self.agents))
        reason = f"no worker has an agent {begin.task.agent!r}; known are {known}"
        if kept.known.started:
            return await self._fail(trajectory_id, kept, reason)
        return await self._refuse(trajectory_id, kept, begin, reason)

    async def _refuse(self, trajectory_id: str, kept: Kept, begin: Begin, reason: str) -> Known | None:
        """Ends what has not begun."""
        takes = begin.submit if kept.arrivals else None
        writer = await self._claim(trajectory_id, begin.tenant, takes)
        kept.offer()
        await writer.append(
            begin.task.model_copy(update={"driver": Driver.WORKER, "origin": None, "inherited_turn": 0}),
            ext=spawn_ext(begin.ext),
        )
        await writer.append(ev.TaskEnded(ending=Ending.REFUSED, reason=reason))
        return await self._let_go(writer, Parked.LEFT, reason)

    async def _note(self, trajectory_id: str, kept: Kept, waits_for: str) -> Known | None:
        """Writes down what came and needs no agent: judgements, and what is refused. Who waited goes on waiting."""
        parked = Parked(kept.known.parked) if kept.known.parked else Parked.LEFT
        noted = kept.noted()
        writer = await self._claim(trajectory_id, None, None)
        for arrival in noted:
            body, ext = _noted(arrival, ended=kept.known.ended)
            taken = arrival.read.envelope.inbox_id
            await writer.append(body, inbox_id=taken, inbox_position=arrival.record.offset, ext=ext)
        return await self._let_go(writer, parked, "", waits_for)

    async def _cancel(self, trajectory_id: str, kept: Kept) -> Known | None:
        """Takes what has come, and ends what was cancelled: nobody needs its agent for that."""
        leash = Leash()
        pen = WriterPen(await self._claim(trajectory_id, None, None), leash)
        taking = Taking(pen, WorkerMailbox(kept), self.clock)
        await taking.take()
        kept.offer()
        try:
            check_cancelled(taking, await pen.standing())
            await pen.release()
        except Cancelled as error:
            await obey(pen, error)
        return self._after(leash)

    async def _fail(self, trajectory_id: str, kept: Kept, reason: str) -> Known | None:
        """Stops one that could not be gone on with; the Retry that let it go on is taken by that."""
        takes = _first(kept.arrivals, "Retry") if kept.known.parked in STOPPED else None
        kept.offer()
        return await self._let_go(await self._claim(trajectory_id, None, takes), Parked.FAILED, reason)

    async def _claim(self, trajectory_id: str, tenant: str | None, takes: Takes | None) -> TrajectoryWriter:
        return await self.producer.claim(
            trajectory_id,
            owner=self.name,
            driver=Driver.WORKER,
            tenant=tenant,
            takes=takes,
        )

    async def _let_go(self, writer: TrajectoryWriter, parked: Parked, reason: str, waits_for: str = "") -> Known | None:
        leash = Leash()
        state = await writer.confirm()
        await writer.release(reason, parked=parked, waits_for=waits_for)
        leash.let_go(state, parked)
        return self._after(leash)

    def _after(self, leash: Leash) -> Known | None:
        return None if leash.state is None else known_of(leash.state, grace_us=self.grace_us)


def _cancelled(state: State, kept: Kept) -> bool:
    """Whether somebody has asked a trajectory that was begun to end."""
    asked = any(one.kind == "Cancel" for one in kept.arrivals)
    return state.status is TrajectoryStatus.CANCELLING or (state.task is not None and asked)


def _first(arrivals: Sequence[Arrival], kind: str) -> Takes | None:
    found = next((one for one in arrivals if one.kind == kind), None)
    return None if found is None else Takes(found.read.envelope.inbox_id, found.record.offset)


def _noted(arrival: Arrival, *, ended: bool) -> tuple[ev.EventBody, Mapping[str, str]]:
    """The event that takes a record which the agent has no part in, and its ext."""
    came = arrival.incoming
    if isinstance(came.body, inbox.Annotation):
        return came.body.event(), {}
    reason = "the trajectory has ended" if ended else _REFUSALS.get(arrival.kind, "not asked for")
    return ev.InboxRefused(refused=came.inbox_id, kind=arrival.kind, reason=reason), spawn_ext(came.ext)


_REFUSALS: Final = {
    "Submit": "the trajectory has another task already",
    "Retry": "the trajectory was not stopped",
}
