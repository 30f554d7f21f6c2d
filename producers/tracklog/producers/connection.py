"""What the sessions of a process share: the log, what writes to it, where bodies go, as the settings say."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from tracklog.infra.blobs import BlobStore
from tracklog.infra.clock import SystemClock, SystemEntropy
from tracklog.infra.log.port import Log
from tracklog.infra.settings import Settings, load_settings
from tracklog.infra.wiring import blobs_of, check_writable, framing_of, opened_log
from tracklog.producers.producer import EventProducer
from tracklog.producers.setup import Setup
from tracklog.schemas import limits
from tracklog.schemas.topics import Topics

__all__ = ["Connection", "connected", "producer_of"]


@dataclass(frozen=True, slots=True)
class Connection:
    """Open for as long as `connected` says. `tenant` is that of new trajectories."""

    log: Log
    producer: EventProducer
    blobs: BlobStore
    topics: Topics = field(default_factory=Topics)
    tenant: str | None = None
    body_inline_bytes_max: int = limits.BODY_INLINE_BYTES_MAX
    failures_a_day: float | None = None

    def completed(self, setup: Setup) -> Setup:
        """The setup with what the settings say, where it says nothing itself."""
        if setup.failures_a_day is None:
            setup = replace(setup, failures_a_day=self.failures_a_day)
        if setup.blobs is not None:
            return setup
        return replace(setup, blobs=self.blobs, body_inline_bytes_max=self.body_inline_bytes_max)


@asynccontextmanager
async def connected(settings: Settings | None = None) -> AsyncIterator[Connection]:
    """A connection for any number of sessions at once. Without `settings` they are those of the process.

    TRACKLOG_* in the environment, tracklog.toml in the current directory, else a SQLite log below .tracklog here,
    whose topics are created when they are missing. Raises SettingsError, LogUnavailable, TopicMissing, TopicMismatch.
    """
    if settings is None:
        settings = load_settings(environ=os.environ, cwd=Path.cwd())
    async with AsyncExitStack() as stack:
        log = await asyncio.to_thread(_opened, settings, stack)
        producer = await asyncio.to_thread(producer_of, settings, log)
        yield Connection(
            log,
            await stack.enter_async_context(producer),
            blobs_of(settings),
            settings.topic_names,
            settings.tenant,
            settings.blobs.body_inline_bytes_max,
            settings.checkpoints.failures_a_day,
        )


def producer_of(settings: Settings, log: Log) -> EventProducer:
    """Raises RegistryError when events are to be framed by a registry that does not know them."""
    return EventProducer(
        log,
        topics=settings.topic_names,
        clock=SystemClock(),
        entropy=SystemEntropy(),
        settings=settings.writer,
        framing=framing_of(settings),
        redaction=settings.redaction.before_append(),
    )


def _opened(settings: Settings, stack: AsyncExitStack) -> Log:
    log = stack.enter_context(opened_log(settings, make_topics=True))
    check_writable(log, settings)
    return log
