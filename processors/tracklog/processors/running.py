"""Putting a processor to work: its store, its group, its loop, from the settings of the process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from tracklog.infra.clock import Clock, Entropy
from tracklog.infra.log.port import Log
from tracklog.infra.partition_loop import PartitionLoop
from tracklog.infra.redis_client import RedisClient
from tracklog.infra.settings_sections import Settings
from tracklog.processors.processor import Processor
from tracklog.processors.projection import Projection
from tracklog.processors.quarantine import Quarantine
from tracklog.processors.redis_store import RedisStore
from tracklog.processors.store_keys import StoreKeys
from tracklog.processors.trajectories import Trajectories
from tracklog.processors.trajectory import Trajectory

S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class Running(Generic[S]):
    """`loop.run(group, stop)` follows the log as a member of the group; `loop.drain()` folds what is there now."""

    loop: PartitionLoop
    group: str
    projection: Projection[S]
    store: RedisStore


def trajectories(
    log: Log, client: RedisClient, settings: Settings, *, clock: Clock, entropy: Entropy
) -> Running[Trajectory]:
    """The built-in projection, which is also the one that quarantines what is not ours."""
    processor = Trajectories(settings.projection)
    quarantine = Quarantine(log, settings.topic_names.quarantine)
    return running(processor, log, client, settings, clock=clock, entropy=entropy, quarantine=quarantine)


def running(
    processor: Processor[S],
    log: Log,
    client: RedisClient,
    settings: Settings,
    *,
    clock: Clock,
    entropy: Entropy,
    quarantine: Quarantine | None = None,
) -> Running[S]:
    """Any processor over the events topic. Raises TopicMissing, LogUnavailable."""
    topics = settings.topic_names
    info = log.describe(topics.events)
    keys = StoreKeys(topics.prefix, processor.name, processor.version)
    source = f"{info.cluster_id}/{info.topic_id}"
    store = RedisStore(client, keys, source=source, entropy=entropy)
    projection = Projection(
        processor,
        store,
        partitions=info.spec.partitions,
        quarantine=quarantine,
        cached_max=settings.projection.trajectories_cached_max,
    )
    loop = PartitionLoop(log, topics.events, projection, clock=clock, settings=settings.loop)
    group = topics.group(f"projection-{processor.name}-v{processor.version}")
    return Running(loop, group, projection, store)
