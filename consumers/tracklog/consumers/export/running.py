"""From settings and an open log to an exporter that runs: its tables, its blobs, its loop."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from tracklog.consumers.blob_copy import LostBlob
from tracklog.consumers.export.blobs import BroughtBlobs
from tracklog.consumers.export.exporter import Committed, Exporter, Tables
from tracklog.consumers.export.redacting import policy_of
from tracklog.infra.blobs import BlobStore, open_blobs
from tracklog.infra.clock import Clock, Entropy
from tracklog.infra.cold.joined import JoinedLog
from tracklog.infra.cold.table import EVENTS_TABLE, UNDECODABLE_TABLE, ColdTable, Identity
from tracklog.infra.log.port import Log
from tracklog.infra.partition_loop import PartitionLoop
from tracklog.infra.settings import Settings
from tracklog.infra.wiring import blobs_of
from tracklog.schemas.errors import LogError

__all__ = ["Export", "Told", "cold_blobs_of", "export_of", "identity_of", "tables_of"]

FOLDER: Final = "blobs"


@dataclass(slots=True)
class Told:
    """What an exporter did since its start. `held_s_max` and `durable_s_max`: as in `Committed`, the greatest."""

    commits: int = 0
    events: int = 0
    undecodable: int = 0
    size_bytes: int = 0
    conflicts: int = 0
    held_s_max: float = 0.0
    durable_s_max: float = 0.0
    durable_s: float = 0.0
    """Of the last commit."""
    offsets: dict[int, int] = field(default_factory=dict)
    """The next offset of each partition that it committed."""

    def add(self, one: Committed) -> None:
        self.commits += 1
        self.events += one.events
        self.undecodable += one.undecodable
        self.size_bytes += one.size_bytes
        self.conflicts += one.conflicts
        self.held_s_max = max(self.held_s_max, one.held_s)
        self.durable_s = one.durable_s
        self.durable_s_max = max(self.durable_s_max, one.durable_s)
        self.offsets.update(one.offsets)


@dataclass(slots=True)
class Export:
    """An exporter and the loop that drives it, as a member of `group`."""

    exporter: Exporter
    loop: PartitionLoop
    tables: Tables
    blobs: BroughtBlobs
    told: Told
    group: str
    log: Log
    on_commit: Callable[[Committed], None] = lambda _: None
    """Called after each commit, by the loop's thread."""

    def unread(self) -> dict[int, int]:
        """Offsets of each partition of the topic that are in the log and not in the table."""
        events = self.tables.events
        topic, behind = events.identity.topic, {}
        for partition in range(self.log.partition_count(topic)):
            first, end = self.log.bounds(topic, partition)
            stored = events.next_offset(partition)
            behind[partition] = max(0, end - (first if stored is None else max(first, stored)))
        return behind

    def lag(self) -> dict[int, int]:
        """Offsets of each owned partition that are in the log and not in the table. Partitions whose end cannot be
        asked for are left out."""
        behind = {}
        topic = self.tables.events.identity.topic
        for partition, stored in dict(self.exporter.stored).items():
            with suppress(LogError):
                behind[partition] = max(0, self.log.bounds(topic, partition).end - stored)
        return behind

    def gap(self) -> dict[int, int]:
        """Offsets of each owned partition that the log has let go of and that are not in the table, and of those over
        which it was not to go on. Partitions that cannot be asked for are left out."""
        log = self.log.hot if isinstance(self.log, JoinedLog) else self.log
        missing = dict(self.exporter.gaps)
        for partition, stored in dict(self.exporter.stored).items():
            with suppress(LogError):
                missing[partition] = max(0, log.bounds(self.tables.events.identity.topic, partition).first - stored)
        return missing


def identity_of(log: Log, settings: Settings) -> Identity:
    """Which topic an export would be of. Raises TopicMissing."""
    topic = settings.topic_names.events
    info = log.describe(topic)
    return Identity(info.cluster_id, info.topic_id, topic, info.spec.partitions)


def tables_of(log: Log, settings: Settings) -> Tables:
    """The tables, made if they are not there. Raises ColdError."""
    cold, identity = settings.cold, identity_of(log, settings)
    options = cold.store_options()
    return Tables(
        *(
            ColdTable.create_if_missing(cold.url, options, identity, kind=kind, timeout_s=cold.timeout_s)
            for kind in (EVENTS_TABLE, UNDECODABLE_TABLE)
        )
    )


def cold_blobs_of(settings: Settings) -> BlobStore:
    """The blobs beside the tables."""
    cold = settings.cold
    return open_blobs(f"{cold.url.rstrip('/')}/{FOLDER}", options=cold.store_options(), timeout_s=cold.timeout_s)


def export_of(
    log: Log,
    settings: Settings,
    *,
    clock: Clock,
    entropy: Entropy,
    accept_gap: bool = False,
    on_lost: Callable[[LostBlob], None] = lambda _: None,
) -> Export:
    """Opens the tables. Raises ColdError, TopicMissing, BlobError."""
    tables, told = tables_of(log, settings), Told()
    policy = policy_of(settings)
    whole = policy is None or not policy.everything  # a blob is what its name says, or it is not there
    target = cold_blobs_of(settings) if whole and settings.cold.blobs == "copy" else None
    blobs = BroughtBlobs(blobs_of(settings), target, on_lost=on_lost)

    exporter = Exporter(
        log,
        tables,
        settings.cold,
        clock=clock,
        entropy=entropy,
        blobs=blobs,
        accept_gap=accept_gap,
        policy=policy,
    )
    loop = PartitionLoop(log, settings.topic_names.events, exporter, clock=clock, settings=settings.loop)
    loop.on_release, loop.stored = exporter.release, lambda: exporter.stored
    export = Export(exporter, loop, tables, blobs, told, settings.topic_names.group(settings.cold.group), log)

    def committed(one: Committed) -> None:
        told.add(one)
        export.on_commit(one)

    exporter.on_commit = committed
    return export
