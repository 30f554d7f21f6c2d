"""Giving tasks to the workers, and hearing what became of them (DESIGN §7).

    client = Client(log, Topics())
    trip = await client.submit("traveller", "book a trip to Oslo", id="trip-1")
    (await client.result(trip, wait_s=60)).value

Everything goes through the inbox, so a client needs neither Redis nor a worker that runs just now.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import orjson

from tracklog.infra.blobs import BlobStore
from tracklog.infra.clock import Clock, Entropy, SystemClock, SystemEntropy
from tracklog.infra.log.partitioner import partition_of
from tracklog.infra.log.port import Log, Position, Reader, Record
from tracklog.infra.log.trimmed import beginning_trimmed, pass_trimmed
from tracklog.producers.bodies import body_of, whole_text
from tracklog.producers.calls_made import check_has_call
from tracklog.producers.going_back import EXT_REASON, EXT_TAKES_OVER, successor_of
from tracklog.producers.post import Poster
from tracklog.producers.record import TEXT
from tracklog.producers.whereabouts import (
    Whereabouts,
    check_can_go_back,
    check_free,
    check_open,
    check_stopped,
    check_there,
    look_up,
)
from tracklog.schemas import events as ev
from tracklog.schemas import inbox
from tracklog.schemas.codec import Framing, decode_event, single_object
from tracklog.schemas.errors import ForeignRecord, InputError, NotDone, OffsetTrimmed, TaskFailed
from tracklog.schemas.fold import fold
from tracklog.schemas.given import checked
from tracklog.schemas.head import Verdict
from tracklog.schemas.limits import BODY_INLINE_BYTES_MAX
from tracklog.schemas.redaction import Redaction
from tracklog.schemas.state import State
from tracklog.schemas.topics import Topics
from tracklog.schemas.values import NO_BUDGETS, Body, Budgets, Driver, Ending, InboxId, Role, check_trajectory_id

__all__ = ["Client", "Placed", "Result"]

POLL_S: Final = 0.25


@dataclass(frozen=True, slots=True)
class Result:
    """How a trajectory ended. `output` is what the agent gave as its result: JSON, None for nothing."""

    trajectory_id: str
    ending: Ending
    output: Any
    reason: str
    turns: int

    @property
    def value(self) -> Any:
        """The output of a completed one. Raises TaskFailed for every other ending."""
        if self.ending is not Ending.COMPLETED:
            raise TaskFailed(
                f"trajectory {self.trajectory_id!r} ended as {self.ending.value}: {self.reason or 'no reason given'}",
                hint=f"tracklog show {self.trajectory_id}",
            )
        return self.output


class Placed(NamedTuple):
    """A task that is durable: its trajectory, and where it is in the inbox topic."""

    trajectory_id: str
    position: Position


class Client:
    """`by` is recorded as who sent it. Raises LogUnavailable, AppendUnknown and what else an append raises."""

    def __init__(
        self,
        log: Log,
        topics: Topics,
        *,
        blobs: BlobStore | None = None,
        by: str = "client",
        tenant: str = "default",
        clock: Clock | None = None,
        entropy: Entropy | None = None,
        framing: Framing = single_object,
        redaction: Redaction | None = None,
    ) -> None:
        self._log = log
        self._topics = topics
        self._blobs = blobs
        self._by = by
        self._tenant = tenant
        self._entropy = entropy if entropy is not None else SystemEntropy()
        used = clock if clock is not None else SystemClock()
        self._poster = Poster(log, topics, clock=used, framing=framing, redaction=redaction)
        self._redaction = redaction

    async def submit(
        self,
        agent: str,
        task: str,
        *,
        id: str | None = None,
        labels: Mapping[str, str] | None = None,
        tenant: str | None = None,
        budgets: Budgets = NO_BUDGETS,
        on_behalf_of: str | None = None,
        swarm: str | None = None,
        where: Whereabouts | None = None,
    ) -> str:
        """Gives a task to the workers; returns the trajectory's id when the task is durable. `on_behalf_of` is who
        asked for it, and may not approve its held calls unless the policy says so; `swarm` names the runs that it talks
        with.

        With an `id` it may be called any number of times: the same task is done once, another task under an id that
        is taken is refused, in the record. `where`, as `look_up` has just found it: such a one is refused here, with
        InvalidEvent. Without it nothing is read.
        """
        placed = await self.place(
            agent,
            task,
            id=id,
            labels=labels,
            tenant=tenant,
            budgets=budgets,
            on_behalf_of=on_behalf_of,
            swarm=swarm,
            where=where,
        )
        return placed.trajectory_id

    async def place(
        self,
        agent: str,
        task: str,
        *,
        id: str | None = None,
        labels: Mapping[str, str] | None = None,
        tenant: str | None = None,
        budgets: Budgets = NO_BUDGETS,
        on_behalf_of: str | None = None,
        swarm: str | None = None,
        where: Whereabouts | None = None,
    ) -> Placed:
        """As `submit`; says also where the task is."""
        trajectory_id = check_trajectory_id(id if id is not None else self._entropy.nonce().hex())
        with checked("the task"):
            started = ev.TaskStarted(
                driver=Driver.WORKER,
                task=self._body(task),
                agent=agent,
                labels=dict(sorted((labels or {}).items())),
                on_behalf_of=on_behalf_of,
                swarm=swarm,
                budgets=budgets,
            )
        body = inbox.Submit(task=started)
        source = f"submit:{_digest(repr(sorted(body.task.model_dump().items())))}"
        if where is not None:
            check_free(where, source)
        return Placed(trajectory_id, await self._post(trajectory_id, body, source, tenant))

    async def look_up(self, trajectory_ids: Iterable[str]) -> dict[str, Whereabouts]:
        """Where these trajectories stand, read from the log at once."""
        ids = [check_trajectory_id(one) for one in trajectory_ids]
        return await asyncio.to_thread(look_up, self._log, self._topics, ids)

    async def send(self, trajectory_id: str, text: str, *, client_id: str | None = None) -> Position:
        """Says something to it; returns where that is in the inbox topic. The messages of all senders are received in
        the order of the inbox.

        With a `client_id` of the sender's own it is received once, however often it is said; of two texts under one
        the first. Raises InputError for a trajectory that is not there, TrajectoryEnded.
        """
        check_open(await self._where(trajectory_id, None))
        body = inbox.Message(peer=self._by, role=Role.USER, message=self._body(text))
        source = self._new("message") if client_id is None else f"message:{_digest(f'{self._by}/{client_id}')}"
        return await self._post(trajectory_id, body, source)

    async def cancel(self, trajectory_id: str, reason: str = "", *, where: Whereabouts | None = None) -> Position:
        """Asks that it ends as cancelled, at its next step; what is under way is settled first.

        `where`: as `look_up` has just found it. Raises InputError for a trajectory that is not there, TrajectoryEnded.
        """
        check_open(await self._where(trajectory_id, where))
        return await self._post(trajectory_id, inbox.Cancel(by=self._by, reason=reason), self._new("cancel"))

    async def retry(self, trajectory_id: str, reason: str = "", *, where: Whereabouts | None = None) -> Position:
        """Lets one that was stopped (failed, stuck, poison, diverged, drift) go on from where it is.

        Raises as `cancel`, and InvalidEvent for one that was not stopped.
        """
        check_stopped(await self._where(trajectory_id, where))
        return await self._post(trajectory_id, inbox.Retry(by=self._by, reason=reason), self._new("retry"))

    async def go_back(
        self, trajectory_id: str, turn: int, reason: str = "", *, where: Whereabouts | None = None
    ) -> str:
        """Has another trajectory go on from a turn of one that was stopped, failed or was cancelled: returns its id.

        The run is ended as cancelled; what it did after the turn is not done again in silence (see `going_back`).
        Asked again, it is the same trajectory. Raises as `retry` does, InputError for a turn that is not there, and
        InvalidEvent for a run that was taken over at another turn.
        """
        found = await self._where(trajectory_id, where)
        check_can_go_back(found)
        new = await asyncio.to_thread(successor_of, self._log, self._topics.events, trajectory_id, turn)
        await self._poster.post(
            new.trajectory_id,
            inbox.Submit(task=new.task),
            inbox_id=InboxId(source="go-back", seq=0),
            tenant=found.state.tenant,
            ext={EXT_TAKES_OVER: trajectory_id, EXT_REASON: reason},
        )
        return new.trajectory_id

    async def annotate(
        self, trajectory_id: str, judgement: inbox.Annotation, *, where: Whereabouts | None = None
    ) -> tuple[State, Position]:
        """Judges it, a turn or a call of it, also after its end; returns how it stood just before, and where the
        judgement is in the inbox topic.

        Taken once for each source and `client_id`, however often it is said. Raises InputError for a trajectory that
        is not there, for a turn that it has not come to and a call that it has not made, TrajectoryFaulty.
        """
        found = await self._where(trajectory_id, where)
        check_there(found)
        if judgement.turn is not None and judgement.turn > found.state.turn:
            raise InputError(f"trajectory {trajectory_id!r} has come to turn {found.state.turn}, not {judgement.turn}")
        if judgement.call_id is not None:
            about = trajectory_id, judgement.call_id
            await asyncio.to_thread(check_has_call, self._log, self._topics.events, *about)
        said = hashlib.sha256(f"annotation/{judgement.client_id}".encode()).hexdigest()[:16]
        at = await self._post(trajectory_id, judgement, f"{judgement.source}/{said}", found.state.tenant)
        return found.state, at

    async def result(self, trajectory_id: str, wait_s: float = 0.0) -> Result:
        """How it ended. Raises NotDone, which says where it stands, when it has not within `wait_s` seconds."""
        pool = ThreadPoolExecutor(1, "tracklog-result")  # of its own: a long wait must not take the others' threads
        try:
            reading = asyncio.get_running_loop().run_in_executor(
                pool, self._read, check_trajectory_id(trajectory_id), wait_s
            )
            state, ended = await reading
        finally:
            pool.shutdown(wait=False)
        output = None if ended.result is None else orjson.loads(await asyncio.to_thread(self._whole, ended.result))
        return Result(state.trajectory_id, ended.ending, output, ended.reason, state.turn)

    def _read(self, trajectory_id: str, wait_s: float) -> tuple[State, ev.TaskEnded]:
        """Follows the trajectory up to its end."""
        key = trajectory_id.encode()
        topic = self._topics.events
        partition = partition_of(key, self._log.partition_count(topic))
        bounds = self._log.bounds(topic, partition)
        until_s = time.monotonic() + wait_s
        state, ended = State(trajectory_id), None
        with closing(self._log.reader(topic, {partition: bounds.first})) as reader:
            while ended is None:
                behind = reader.position(partition) < bounds.end
                for record in self._polled(reader, partition, POLL_S if behind or wait_s else 0.0):
                    if record.key != key:
                        continue
                    try:
                        event = decode_event(key, record.value, record.headers)
                    except ForeignRecord:
                        continue  # nobody's event
                    state, judgement = fold(state, event)
                    if judgement.verdict is Verdict.ACCEPTED and isinstance(event.body, ev.TaskEnded):
                        ended = event.body
                if ended is None and time.monotonic() > until_s and reader.position(partition) >= bounds.end:
                    if bounds.first > 0 and not state.events:
                        raise beginning_trimmed(topic, partition, bounds.first, trajectory_id)
                    raise _not_done(state)
        return state, ended

    def _polled(self, reader: Reader, partition: int, wait_s: float) -> list[Record]:
        try:
            return reader.poll(1000, wait_s)
        except OffsetTrimmed:
            if not pass_trimmed(self._log, self._topics.events, reader, [partition]):
                raise
            return []

    def _whole(self, body: Body) -> str:
        if body.whole:
            return body.text
        if self._blobs is None:
            raise InputError("the result is in the blob store", hint="give the client blobs=")
        return whole_text(body, self._blobs)

    def _body(self, text: str) -> Body:
        text = text if self._redaction is None else self._redaction.text(text)
        if len(text.encode()) <= BODY_INLINE_BYTES_MAX:
            return Body.of(text, TEXT)
        if self._blobs is None:
            raise InputError(
                f"a task of {len(text.encode())} bytes belongs into the blob store", hint="give the client blobs="
            )
        return body_of(text, self._blobs, BODY_INLINE_BYTES_MAX, TEXT)

    async def _where(self, trajectory_id: str, known: Whereabouts | None) -> Whereabouts:
        return known if known is not None else (await self.look_up([trajectory_id]))[trajectory_id]

    def _new(self, kind: str) -> str:
        return f"{kind}:{self._entropy.nonce().hex()}"

    async def _post(
        self, trajectory_id: str, body: inbox.InboxBody, source: str, tenant: str | None = None
    ) -> Position:
        own = tenant if tenant is not None else self._tenant
        return await self._poster.post(trajectory_id, body, inbox_id=InboxId(source=source, seq=0), tenant=own)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _not_done(state: State) -> NotDone:
    if state.parked:
        where = f"is parked: {state.parked}{f' ({state.reason})' if state.reason else ''}"
    elif state.task is None:
        where = "is not there, or no worker has begun with it"
    else:
        where = f"is {state.summary}, in turn {state.turn}"
    return NotDone(f"trajectory {state.trajectory_id!r} {where}", hint=f"tracklog show {state.trajectory_id}")
