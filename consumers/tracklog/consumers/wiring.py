"""From settings to open things, for commands: what `infra.wiring` and `producers.connection` open, Redis, projections.

Each is a context manager that closes what it opened.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tracklog.consumers.dispatch.kept import Keeper, keeper_on
from tracklog.infra.clock import SystemClock, SystemEntropy
from tracklog.infra.log.port import Log
from tracklog.infra.redis_client import RedisClient, connect
from tracklog.infra.settings import Settings
from tracklog.infra.stack.embedded import embedded_redis
from tracklog.infra.stack.local import LocalStack
from tracklog.infra.wiring import (
    BULK_LINGER_MS,
    blobs_of,
    check_topic,
    check_writable,
    cold_log_of,
    framing_of,
    is_cold,
    is_embedded,
    opened_log,
)
from tracklog.processors.agenda import Agenda, TrajectoryAgenda
from tracklog.processors.builtin.refused import Refused
from tracklog.processors.loading import BUILTIN
from tracklog.processors.outbox import POSTS_MAX
from tracklog.processors.running import Processes, Running, processes, running, trajectories
from tracklog.processors.trajectory import Trajectory
from tracklog.producers.connection import producer_of
from tracklog.schemas.errors import SettingsError

__all__ = [
    "BULK_LINGER_MS",
    "blobs_of",
    "check_topic",
    "check_writable",
    "cold_log_of",
    "everything_of",
    "folds_itself",
    "framing_of",
    "is_cold",
    "is_embedded",
    "keeper_for",
    "lag_of",
    "opened_log",
    "opened_redis",
    "opened_views",
    "producer_of",
    "projection_of",
    "redis_address",
    "refused_of",
]

EMBEDDED: Final = "embedded"


@contextmanager
def redis_address(settings: Settings) -> Iterator[str]:
    """The URL of the Redis to use; one of our own is started for as long as the block lasts.

    `embedded` with a Kafka log is the local stack's Redis where that runs. With an embedded log it never is: views
    of two logs must not meet in one store.
    """
    running = _running_redis(settings)
    if running is not None:
        yield running
        return
    with embedded_redis(Path(settings.home) / "redis") as started:
        yield started


def _running_redis(settings: Settings) -> str | None:
    """The URL of a Redis that runs without us."""
    url = settings.redis.url_in_full
    if url != EMBEDDED:
        return url
    return None if is_embedded(settings) else LocalStack(Path(settings.home)).status().redis


@contextmanager
def opened_redis(settings: Settings) -> Iterator[RedisClient]:
    """Raises StoreUnavailable, StoreUnsafe, StackError when none can be started."""
    with redis_address(settings) as url:
        client = connect(url, timeout_s=settings.redis.timeout_s)
        try:
            yield client
        finally:
            client.close()


@contextmanager
def keeper_for(settings: Settings, log: Log) -> Iterator[Keeper | None]:
    """What a dispatcher keeps in Redis; None without a Redis that runs for longer than it does."""
    if _running_redis(settings) is None:
        yield None
        return
    with opened_redis(settings) as client:
        known_max = settings.projection.trajectories_cached_max
        yield keeper_on(
            client, log, settings.topic_names, clock=SystemClock(), entropy=SystemEntropy(), known_max=known_max
        )


def projection_of(settings: Settings, log: Log, client: RedisClient) -> Running[Trajectory]:
    return trajectories(log, client, settings, clock=SystemClock(), entropy=SystemEntropy())


def agenda_of(settings: Settings, log: Log, client: RedisClient) -> Running[TrajectoryAgenda]:
    """The agenda, folded without waiting for batches to fill: what it says is waited for."""
    loop = settings.loop
    quick = loop.model_copy(
        update={"batch_wait_s": 0.0, "batch_records_max": min(loop.batch_records_max, POSTS_MAX), "poll_timeout_s": 0.1}
    )
    own = settings.model_copy(update={"loop": quick})
    return running(Agenda(), log, client, own, clock=SystemClock(), entropy=SystemEntropy())


def everything_of(settings: Settings, log: Log, client: RedisClient) -> Processes:
    """The trajectories' projection and all processors that come with Tracklog."""
    processors = [kind() for kind in BUILTIN]
    return processes(processors, log, client, settings, clock=SystemClock(), entropy=SystemEntropy(), builtin=True)


def refused_of(settings: Settings, log: Log, client: RedisClient) -> Processes:
    """What owners refused, and how the trajectories stand of which that is told."""
    return processes([Refused()], log, client, settings, clock=SystemClock(), entropy=SystemEntropy(), builtin=True)


def folds_itself(settings: Settings) -> bool:
    """True when log and Redis are this machine's alone, so that whoever looks folds what is new."""
    return settings.redis.url.get_secret_value() == EMBEDDED and is_embedded(settings)


@contextmanager
def opened_views(
    settings: Settings, view: Callable[[Settings, Log, RedisClient], Running[Any] | Processes] = projection_of
) -> Iterator[tuple[Log, RedisClient]]:
    """Log and Redis for reading a view. With a Redis of our own, what is new is folded first: a laptop needs no
    process in the background. With any other, the view is as new as what folds it. Raises SettingsError for a cold
    log: views are of the log itself."""
    if is_cold(settings):
        raise SettingsError(
            f"views in Redis are folded from the log, not from {settings.log.url}",
            hint="ask the log itself, or the table: tracklog query (docs/query.md)",
        )
    with opened_log(settings) as log:
        check_topic(log, settings)
        with opened_redis(settings) as client:
            if folds_itself(settings):
                view(settings, log, client).loop.drain()
            yield log, client


def lag_of(log: Log, topic: str, positions: Mapping[int, int], partitions: Iterable[int] | None = None) -> int:
    """Records between how far views are folded and the present ends; holes of the log count too."""
    chosen = positions if partitions is None else partitions
    return sum(max(0, log.bounds(topic, one).end - positions.get(one, 0)) for one in chosen)
