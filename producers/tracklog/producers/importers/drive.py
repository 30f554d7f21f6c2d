"""Writes recorded runs to the log, each once: again, or after a crash in the middle, gives the same events.

Every event carries an inbox id (source of the run, number of its step), so the state of the trajectory says
how far an import came. Several trajectories are written at a time; two importers on one run are arbitrated
by the log, and the one that loses appends nothing that counts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Final, TypeGuard

from tracklog.infra.blobs import BlobStore
from tracklog.infra.log.port import Log
from tracklog.producers.history import read_history
from tracklog.producers.importers.plan import PlannedEvent, located, plan
from tracklog.producers.importers.report import Conflict, ImportReport, SoFar
from tracklog.producers.importers.run import BadRun, Run
from tracklog.producers.importers.standing import ALREADY, inbox_source, next_step
from tracklog.producers.importers.storing import Storing
from tracklog.producers.producer import TENANT_DEFAULT, EventProducer
from tracklog.producers.writer import TrajectoryWriter
from tracklog.schemas import limits
from tracklog.schemas.codec import Event
from tracklog.schemas.errors import (
    BlobTooLarge,
    ClaimLost,
    Fenced,
    InvalidEvent,
    RecordTooLarge,
    TracklogError,
    TrajectoryFaulty,
)
from tracklog.schemas.state import State
from tracklog.schemas.values import Driver, InboxId, Ref

CONCURRENCY_DEFAULT: Final = 32
RUNS_BATCH_MAX: Final = 512
"""Runs looked up in the log by one scan."""
STEPS_BATCH_MAX: Final = 50_000
"""Steps of those runs held in memory."""
INTERRUPT_WAIT_S: Final = 5.0
"""After an interrupt: how long to wait for the reports of what is under way."""

History = Callable[[str], Sequence[Event]]
"""The accepted events of a trajectory, in order; may block."""


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
        importing.freeze()
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
        self._history = history
        self._tenant = tenant
        self._owner = owner
        self._storing = Storing(blobs, limit)
        self._on_progress = on_progress
        self._sources: dict[str, str] = {}
        self._lost: list[Run] = []
        self._taken: list[str] = []
        self._refused: list[BadRun] = []
        self._conflicts: list[Conflict] = []
        self.report = self.report._replace(
            taken=SoFar(self._taken), refused=SoFar(self._refused), conflicts=SoFar(self._conflicts)
        )

    def freeze(self) -> None:
        """Makes the report one that compares by what it says. Copies all of it, so once, at the end."""
        self.report = self.report._replace(
            taken=tuple(self._taken), refused=tuple(self._refused), conflicts=tuple(self._conflicts)
        )

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
                self._taken.append(run.trajectory_id)
                self.report = self.report._replace(taken=SoFar(self._taken))
            self._producer.forget(run.trajectory_id)

    def _is_first(self, run: Run | BadRun) -> TypeGuard[Run]:
        """Whether this run is to be written: it could be read, and no run before it had its trajectory id."""
        if isinstance(run, BadRun):
            self._refuse(run)
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
                planned = plan(run)
                self._storing.check(planned)
                await self._claim_and_write(run, planned)
        except (ClaimLost, Fenced):
            self._lost.append(run)
        except BlobTooLarge as error:
            self._refuse(BadRun(file=run.file, line=run.line, reason=f"{run.trajectory_id}: {error.message}"))
        except (TrajectoryFaulty, RecordTooLarge, InvalidEvent) as error:
            self._conflict(run, error.message)

    async def _claim_and_write(self, run: Run, planned: Sequence[PlannedEvent]) -> None:
        """Claims, looks again at what is in (another importer may have been here), writes the rest, releases."""
        async with await self._producer.claim(
            run.trajectory_id, owner=self._owner, driver=Driver.IMPORT, tenant=self._tenant, reason="import"
        ) as writer:
            found = next_step(run, writer.state, self._tenant)
            if isinstance(found, int):
                await self._write(writer, run, planned, found)
        if isinstance(found, int):
            self._count(new=found == 0, resumed=found > 0)
        elif found == ALREADY:
            self._count(already=1)
        else:
            self._conflict(run, found)

    async def _write(self, writer: TrajectoryWriter, run: Run, planned: Sequence[PlannedEvent], start: int) -> None:
        seqs = await self._seqs_before(run, start) if start > 0 else []
        source, first = inbox_source(run), writer.next_seq
        try:
            for number, one in enumerate(planned[start:], start=start):
                appended = await writer.append(
                    located(await self._storing.store(one), seqs),
                    turn=one.turn,
                    causes=tuple(Ref(trajectory_id=run.trajectory_id, seq=seqs[step]) for step in one.causes),
                    inbox_id=InboxId(source=source, seq=number),
                    ext=one.ext,
                )
                seqs.append(appended.seq)
            await writer.confirm()
        except asyncio.CancelledError:
            await self._wait_for_reports(writer, first)
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

    def _count(self, *, new: int = 0, resumed: int = 0, already: int = 0, events: int = 0) -> None:
        now = self.report
        self.report = now._replace(
            new=now.new + new,
            resumed=now.resumed + resumed,
            already=now.already + already,
            events=now.events + events,
        )

    def _conflict(self, run: Run, reason: str) -> None:
        self._conflicts.append(Conflict(run.trajectory_id, reason))
        self.report = self.report._replace(conflicts=SoFar(self._conflicts))

    def _refuse(self, bad: BadRun) -> None:
        self._refused.append(bad)
        self.report = self.report._replace(refused=SoFar(self._refused))


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """The error that made the others: a task group reports it first."""
    error = errors.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error


def log_history(log: Log, topic: str) -> History:
    """The history as it is in the log: a scan of one partition for each trajectory asked for."""
    return lambda trajectory_id: [event for event, _ in read_history(log, topic, trajectory_id)[1]]
