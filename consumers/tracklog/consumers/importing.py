"""Importing recorded runs into a log, from the settings of the process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from tracklog.consumers.wiring import blobs_of, check_writable, producer_of
from tracklog.infra.log.port import Log
from tracklog.infra.settings import Settings
from tracklog.producers.history import read_history
from tracklog.producers.importers.drive import import_runs
from tracklog.producers.importers.report import ImportReport
from tracklog.producers.importers.run import BadRun, Run
from tracklog.schemas.codec import Event


def import_into(
    log: Log,
    settings: Settings,
    runs: Iterable[Run | BadRun],
    *,
    tenant: str | None = None,
    on_progress: Callable[[ImportReport], None] | None = None,
) -> ImportReport:
    """Writes the runs, each once, and returns what became of them. Blocks.

    Raises TopicMissing and TopicMismatch before anything is written, and what stops an import (`import_runs`);
    doing it again goes on where it stopped. An interrupt waits a moment for what is under way; the last report
    given to `on_progress` says what is durable.
    """

    async def write() -> ImportReport:
        async with producer_of(settings, log) as producer:
            return await import_runs(
                producer,
                blobs_of(settings),
                runs,
                history=history,
                tenant=settings.tenant if tenant is None else tenant,
                body_inline_bytes_max=settings.blobs.body_inline_bytes_max,
                on_progress=on_progress,
            )

    def history(trajectory_id: str) -> list[Event]:
        return [event for event, _ in read_history(log, settings.topic_names.events, trajectory_id)[1]]

    check_writable(log, settings)
    return asyncio.run(write())
