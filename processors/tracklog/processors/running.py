"""Putting processors to work: their stores, their group, their loop, from the settings of the process."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from tracklog.infra.clock import Clock, Entropy
from tracklog.infra.log.port import Log, Record, TopicInfo
from tracklog.infra.log.ranges import read_range
from tracklog.infra.partition_loop import PartitionLoop
from tracklog.infra.redis_client import RedisClient
from tracklog.infra.redis_script import RedisScript
from tracklog.infra.settings_sections import Settings
from tracklog.processors.bundle import Bundle
from tracklog.processors.member import Member
from tracklog.processors.processor import Processor
from tracklog.processors.projection import Projection
from tracklog.processors.quarantine import Quarantine
from tracklog.processors.record_processor import RecordProcessor
from tracklog.processors.redis_store import RedisStore, committing
from tracklog.processors.store import Store
from tracklog.processors.store_keys import StoreKeys
from tracklog.processors.trajectories import NAME, Trajectories
from tracklog.processors.trajectory import Trajectory
from tracklog.processors.view import View, ViewBounds

S = TypeVar("S")
AnyProcessor = Processor[Any] | RecordProcessor[Any]


@dataclass(frozen=True, slots=True)
class Running(Generic[S]):
    """`loop.run(group, stop)` follows the log as a member of the group; `loop.drain()` folds what is there now."""

    loop: PartitionLoop
    group: str
    bundle: Bundle
    projection: Projection[S]
    store: RedisStore


@dataclass(frozen=True, slots=True)
class Processes:
    """Several processors in one process. `views` by NAME-vVERSION, without the built-in projection."""

    loop: PartitionLoop
    group: str
    bundle: Bundle
    views: Mapping[str, View[Any]]
    partitions: int
    name: str
    """What people call them by: the first one's name, and how many others there are."""
    trajectories: Trajectories | None
    """The processor of the trajectories' projection, where that is among them."""

    @property
    def names(self) -> list[str]:
        """Of all of them, without versions."""
        own = [] if self.trajectories is None else [self.trajectories.name]
        return own + sorted({view.processor.name for view in self.views.values()})

    def drain(self, stop: threading.Event | None = None) -> dict[int, int]:
        """Folds what is there now, and takes up again what was asked for, also where nothing is new."""
        for partition in range(self.partitions):
            position = self.bundle.restore(partition)
            if any(view.parked(partition) for view in self.views.values()):
                self.bundle.fold(partition, [], position)()
            self.bundle.forget(partition)
        return self.loop.drain(stop=stop)


def trajectories(
    log: Log, client: RedisClient, settings: Settings, *, clock: Clock, entropy: Entropy
) -> Running[Trajectory]:
    """The built-in projection, which is also the one that quarantines what is not ours."""
    processor = Trajectories(settings.projection)
    quarantine = Quarantine(log, settings.topic_names.quarantine)
    return running(processor, log, client, settings, clock=clock, entropy=entropy, quarantine=quarantine)


def running(
    processor: RecordProcessor[S],
    log: Log,
    client: RedisClient,
    settings: Settings,
    *,
    clock: Clock,
    entropy: Entropy,
    quarantine: Quarantine | None = None,
) -> Running[S]:
    """One record processor over the events topic. Raises TopicMissing, LogUnavailable."""
    topics = settings.topic_names
    info = log.describe(topics.events)
    store, projection = _projection(processor, info, client, settings, entropy)
    bundle = Bundle([projection], partitions=info.spec.partitions, quarantine=quarantine)
    loop = PartitionLoop(log, topics.events, bundle, clock=clock, settings=settings.loop)
    return Running(loop, topics.group(_group([_named(processor)])), bundle, projection, store)


def processes(
    processors: Sequence[Processor[Any]],
    log: Log,
    client: RedisClient,
    settings: Settings,
    *,
    clock: Clock,
    entropy: Entropy,
    builtin: bool = False,
) -> Processes:
    """Any processors over the events topic, each record decoded once for all. `builtin`: the trajectories' projection
    too. Raises TopicMissing, LogUnavailable, InvalidProcessor."""
    topics = settings.topic_names
    info = log.describe(topics.events)
    partitions = info.spec.partitions
    script = committing(client)
    views: dict[str, View[Any]] = {}
    for one in processors:
        store = store_of(one, info, client, settings, entropy, script=script)
        views[_named(one)] = view_of(one, store, log, settings, partitions=partitions)
    members: list[Member] = list(views.values())
    names = list(views)
    quarantine = own = None
    if builtin:
        own = Trajectories(settings.projection)
        members.insert(0, _projection(own, info, client, settings, entropy, script)[1])
        names.append(_named(own))
        quarantine = Quarantine(log, topics.quarantine)
    bundle = Bundle(members, partitions=partitions, quarantine=quarantine)
    loop = PartitionLoop(log, topics.events, bundle, clock=clock, settings=settings.loop)
    return Processes(loop, topics.group(_group(names)), bundle, views, partitions, _called(processors, builtin), own)


def _projection(
    processor: RecordProcessor[S],
    info: TopicInfo,
    client: RedisClient,
    settings: Settings,
    entropy: Entropy,
    script: RedisScript | None = None,
) -> tuple[RedisStore, Projection[S]]:
    store = store_of(processor, info, client, settings, entropy, script=script)
    cached_max = settings.projection.trajectories_cached_max
    return store, Projection(processor, store, partitions=info.spec.partitions, cached_max=cached_max)


def _named(processor: AnyProcessor) -> str:
    return f"{processor.name}-v{processor.version}"


def _called(processors: Sequence[Processor[Any]], builtin: bool) -> str:
    names = [NAME] if builtin else []
    names += [one.name for one in processors]
    others = f"+{len(names) - 1}" if len(names) > 1 else ""
    return names[0] + others if names else ""


def _group(names: Sequence[str]) -> str:
    """One group for one set of processors: its members must all fold the same."""
    if len(names) == 1:
        return f"projection-{names[0]}"
    return f"projections-{hashlib.sha256(' '.join(sorted(names)).encode()).hexdigest()[:12]}"


def view_of(processor: Processor[S], store: Store, log: Log, settings: Settings, *, partitions: int) -> View[S]:
    """A view over a store, reading the events topic again where it must."""
    topic = settings.topic_names.events

    def reread(partition: int, start: int, end: int) -> Iterator[Record]:
        return read_range(log, topic, partition, start, end)

    return View(
        processor,
        store,
        partitions=partitions,
        bounds=ViewBounds(
            settings.processors.states_cached_max, settings.processors.state_bytes_max, settings.processors.parked_max
        ),
        reread=reread,
        pause=threading.Event().wait,
    )


def member_of(
    processor: AnyProcessor, store: Store, log: Log, settings: Settings, *, partitions: int
) -> View[Any] | Projection[Any]:
    """What folds a processor into a store: a view, or the projection of one that judges for itself."""
    if isinstance(processor, Processor):
        return view_of(processor, store, log, settings, partitions=partitions)
    return Projection(processor, store, partitions=partitions, cached_max=settings.projection.trajectories_cached_max)


def store_of(
    processor: AnyProcessor,
    info: TopicInfo,
    client: RedisClient,
    settings: Settings,
    entropy: Entropy,
    *,
    build: int | None = None,
    script: RedisScript | None = None,
) -> RedisStore:
    """The store of a projection of the events topic: of the live build, or of the one that is named. `script`: one
    that it shares."""
    keys = StoreKeys(settings.topic_names.prefix, processor.name, processor.version, build or 0)
    source = f"{info.cluster_id}/{info.topic_id}"
    return RedisStore(client, keys, source=source, entropy=entropy, follow=build is None, script=script)
