"""Writes recorded runs to the log, each once: again, or after a crash in the middle, gives the same events.

Every event carries an inbox id (source of the run, number of its step), so the state of the trajectory says
how far an import came. Several trajectories are written at a time; two importers on one run are arbitrated
by the log, and the one that loses appends nothing that counts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final, TypeGuard

from tracklog.infra.blobs import BlobStore
from tracklog.infra.log.port import Log
from tracklog.producers.bodies import body_of
from tracklog.producers.history import read_history
from tracklog.producers.importers.plan import PlannedEvent, located, plan
from tracklog.producers.importers.report import Conflict, ImportReport
from tracklog.producers.importers.run import BadRun, Run
from tracklog.producers.importers.standing import ALREADY, inbox_source, next_step
from tracklog.producers.producer import TENANT_DEFAULT, EventProducer
from tracklog.producers.writer import TrajectoryWriter
from tracklog.schemas import events as ev
from tracklog.schemas import limits
from tracklog.schemas.codec import Event
from tracklog.schemas.errors import (
    ClaimLost,
    Fenced,
    InvalidEvent,
    RecordTooLarge,
    TracklogError,
    TrajectoryFaulty,
)
from tracklog.schemas.state import State
from tracklog.schemas.values import Body, Driver, InboxId, Ref

CONCURRENCY_DEFAULT: Final = 32
RUNS_BATCH_MAX: Final = 512
"""Runs looked up in the log by one scan."""
STEPS_BATCH_MAX: Final = 50_000
"""Steps of those runs held in memory."""
INTERRUPT_WAIT_S: Final = 5.0
"""After an interrupt: how long to wait for the reports of what is under way."""
ENVELOPE_BYTES: Final = 8 * 1024
"""Room left in an event for everything that is no body."""

History = Callable[[str], Sequence[Event]]
"""The accepted events of a trajectory, in order; may block."""

_BODY_FIELDS: Final[Mapping[type[ev.EventBody], str]] = {
    ev.TaskStarted: "task",
    ev.Observed: "value",
    ev.MessageReceived: "message",
    ev.ModelReplied: "reply",
    ev.ToolIntent: "arguments",
    ev.ToolResult: "output",
    ev.TaskEnded: "result",
}


async def import_runs(
    producer: EventProducer,
    blobs: BlobStore,
    runs: Iterable[Run | BadRun],
    *,
    history: History,
    tenant: str = TENANT_DEFAULT,
    owner: str = "importer",
    body_inline_bytes_max: int = limits.BODY_INLINE_BYTES_MAX,
    concurrency: int = CONCURRENCY_DEFAULT,
    on_progress: Callable[[ImportReport], None] | None = None,
) -> ImportReport:
    """Imports the runs and returns what became of them; `on_progress` hears of every run that is done.

    `history` is asked only for a run that is in already in part. When it is cancelled, what was appended is
    waited for (INTERRUPT_WAIT_S at most), `on_progress` is told once more what is durable, and the
    cancellation goes on. Raises LogUnavailable, AppendRefused, Undecided, ClientFatal, BlobError: the import
    stops, and doing it again goes on where it stopped.
    """
    importing = _Import(producer, blobs, history, tenant, owner, body_inline_bytes_max, on_progress)
    try:
        for batch in _batches(runs):
            await importing.batch(batch, concurrency)
        await importing.look_at_lost()
    finally:
        importing.tell()
    return importing.report


def _batches(runs: Iterable[Run | BadRun]) -> Iterator[list[Run | BadRun]]:
    batch: list[Run | BadRun] = []
    steps = 0
    for run in runs:
        batch.append(run)
        steps += len(run.steps) if isinstance(run, Run) else 0
        if len(batch) >= RUNS_BATCH_MAX or steps >= STEPS_BATCH_MAX:
            yield batch
            batch, steps = [], 0
    if batch:
        yield batch


class _Import:
    def __init__(
        self,
        producer: EventProducer,
        blobs: BlobStore,
        history: History,
        tenant: str,
        owner: str,
        limit: int,
        on_progress: Callable[[ImportReport], None] | None,
    ) -> None:
        self.report = ImportReport()
        self._producer = producer
        self._blobs = blobs
        self._history = history
        self._tenant = tenant
        self._owner = owner
        self._limit = limit
        self._on_progress = on_progress
        self._sources: dict[str, str] = {}
        self._lost: list[Run] = []

    def tell(self) -> None:
        if self._on_progress is not None:
            self._on_progress(self.report)

    async def batch(self, batch: list[Run | BadRun], concurrency: int) -> None:
        """Looks all runs up by one scan, then writes what is missing, several at a time."""
        runs = [run for run in batch if self._is_first(run)]
        states = await self._producer.prefetch([run.trajectory_id for run in runs])
        waiting = iter(runs)

        async def work() -> None:
            for run in waiting:
                await self._one(run, states.pop(run.trajectory_id))
                self._producer.forget(run.trajectory_id)
                self.tell()

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(concurrency, len(runs))):
                    group.create_task(work())
        except BaseExceptionGroup as errors:
            raise _first(errors) from None

    async def look_at_lost(self) -> None:
        """Reads what became of the runs that another importer took."""
        if not self._lost:
            return
        states = await self._producer.prefetch([run.trajectory_id for run in self._lost])
        for run in self._lost:
            found = next_step(run, states[run.trajectory_id], self._tenant)
            if found == ALREADY:
                self._count(already=1)
            elif isinstance(found, str):
                self._conflict(run, found)
            else:
                self.report = self.report._replace(taken=(*self.report.taken, run.trajectory_id))
            self._producer.forget(run.trajectory_id)

    def _is_first(self, run: Run | BadRun) -> TypeGuard[Run]:
        """Whether this run is to be written: it could be read, and no run before it had its trajectory id."""
        if isinstance(run, BadRun):
            self.report = self.report._replace(refused=(*self.report.refused, run))
            return False
        before = self._sources.get(run.trajectory_id)
        if before is None:
            self._sources[run.trajectory_id] = run.source
            return True
        if before == run.source:
            self._count(already=1)
        else:
            self._conflict(run, "another run of the same import has this id")
        return False

    async def _one(self, run: Run, state: State) -> None:
        found = next_step(run, state, self._tenant)
        try:
            if found == ALREADY:
                self._count(already=1)
            elif isinstance(found, str):
                self._conflict(run, found)
            else:
                await self._claim_and_write(run)
        except (ClaimLost, Fenced):
            self._lost.append(run)
        except (TrajectoryFaulty, RecordTooLarge, InvalidEvent) as error:
            self._conflict(run, error.message)

    async def _claim_and_write(self, run: Run) -> None:
        """Claims, looks again at what is in (another importer may have been here), writes the rest, releases."""
        writer = await self._producer.claim(
            run.trajectory_id, owner=self._owner, driver=Driver.IMPORT, tenant=self._tenant, reason="import"
        )
        found = next_step(run, writer.state, self._tenant)
        if isinstance(found, int):
            await self._write(writer, run, found)
        await writer.release()
        if isinstance(found, int):
            self._count(new=found == 0, resumed=found > 0)
        elif found == ALREADY:
            self._count(already=1)
        else:
            self._conflict(run, found)

    async def _write(self, writer: TrajectoryWriter, run: Run, start: int) -> None:
        seqs = await self._seqs_before(run, start) if start > 0 else []
        source, first = inbox_source(run), writer.next_seq
        try:
            for number, planned in enumerate(plan(run)[start:], start=start):
                appended = await writer.append(
                    located(await self._store(planned), seqs),
                    turn=planned.turn,
                    causes=tuple(Ref(trajectory_id=run.trajectory_id, seq=seqs[step]) for step in planned.causes),
                    inbox_id=InboxId(source=source, seq=number),
                    ext=planned.ext,
                )
                seqs.append(appended.seq)
            await writer.confirm()
        except asyncio.CancelledError:
            await self._wait_for_reports(writer, first)
            raise
        except RecordTooLarge:
            await writer.release("refused")
            raise
        self._count(events=writer.next_seq - first)

    async def _wait_for_reports(self, writer: TrajectoryWriter, first: int) -> None:
        """After an interrupt: counts what was appended if it turns out durable in time."""
        with suppress(TracklogError, TimeoutError):
            async with asyncio.timeout(INTERRUPT_WAIT_S):
                await writer.barrier()
                self._count(events=writer.next_seq - first)

    async def _seqs_before(self, run: Run, start: int) -> list[int]:
        """The seqs of the steps that are in; more than those are another importer's, who has taken over."""
        events = await asyncio.to_thread(self._history, run.trajectory_id)
        source = inbox_source(run)
        taken = [event.envelope for event in events]
        seqs = [e.seq for e in taken if e.inbox_id is not None and e.inbox_id.source == source]
        if len(seqs) < start:
            raise InvalidEvent(f"only {len(seqs)} of its {start} imported steps are still in the log; it cannot go on")
        return seqs[:start]

    async def _store(self, planned: PlannedEvent) -> ev.EventBody:
        """Puts the texts that must be in the blob store there, and returns the event that names them."""
        for text, media_type in planned.stores:
            await asyncio.to_thread(self._blobs.put, text.encode(), media_type=media_type)
        body = planned.body
        field = _BODY_FIELDS.get(type(body))
        whole: Body | None = None if field is None else getattr(body, field)
        if field is None or whole is None or whole.size_bytes <= self._room(planned):
            return body
        cut = await asyncio.to_thread(body_of, whole.text, self._blobs, self._room(planned), whole.media_type)
        return body.model_copy(update={field: cut})

    def _room(self, planned: PlannedEvent) -> int:
        """Bytes of a body that may stay in its event."""
        if self._limit <= limits.BODY_INLINE_BYTES_MAX:
            return self._limit
        calls = planned.body.tool_calls if isinstance(planned.body, ev.ModelReplied) else ()
        fixed = sum(len(call.arguments.encode()) for call in calls) + sum(map(len, planned.ext.values()))
        return min(self._limit, max(0, limits.EVENT_BYTES_MAX - ENVELOPE_BYTES - fixed))

    def _count(self, *, new: int = 0, resumed: int = 0, already: int = 0, events: int = 0) -> None:
        now = self.report
        self.report = now._replace(
            new=now.new + new,
            resumed=now.resumed + resumed,
            already=now.already + already,
            events=now.events + events,
        )

    def _conflict(self, run: Run, reason: str) -> None:
        conflict = Conflict(run.trajectory_id, reason)
        self.report = self.report._replace(conflicts=(*self.report.conflicts, conflict))


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """The error that made the others: a task group reports it first."""
    error = errors.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error


def log_history(log: Log, topic: str) -> History:
    """The history as it is in the log: a scan of one partition for each trajectory asked for."""
    return lambda trajectory_id: [event for event, _ in read_history(log, topic, trajectory_id)[1]]
