"""Folding into Redis: events a second with verdicts and guarded writes, the loop alone, and memory."""

from __future__ import annotations

import secrets
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence

from benchmarks import services
from benchmarks.measure import Measure
from benchmarks.writing import EVENT, NOW_US
from tracklog.infra.clock import SystemClock, SystemEntropy
from tracklog.infra.log.open import open_log
from tracklog.infra.log.port import Log, Record
from tracklog.infra.partition_loop import PartitionLoop
from tracklog.infra.redis_client import connect
from tracklog.infra.settings_sections import Settings
from tracklog.processors.running import trajectories
from tracklog.schemas.codec import Encoded, decode_event, encode_event
from tracklog.schemas.events import OwnershipClaimed, TaskStarted
from tracklog.schemas.fold import fold
from tracklog.schemas.stamp import Stamp, trajectory_prefix
from tracklog.schemas.state import State
from tracklog.schemas.values import ZERO_HASH, Body, Driver

TRAJECTORIES = 600
EVENTS_EACH = 100
MANY_TRAJECTORIES = 50_000
MANY_EVENTS_EACH = 3
MEMORY_TIMEOUT_S = 600.0


def chain(trajectory_id: str, count: int) -> Iterator[Encoded]:
    """A claim, a start, and steps of about 600 bytes."""
    prefix, previous = trajectory_prefix(trajectory_id, "default"), ZERO_HASH
    claim = OwnershipClaimed(owner="bench", nonce=bytes(16), driver=Driver.LIBRARY)
    task = TaskStarted(driver=Driver.LIBRARY, task=Body.of("bench"), agent="bench", labels={"order": trajectory_id})
    for seq in range(count):
        body = claim if seq == 0 else task if seq == 1 else EVENT
        stamp = Stamp(trajectory_id, prefix, seq, min(seq, 1), seq, seq, NOW_US, previous)
        encoded = encode_event(stamp, body)
        previous = encoded.hash
        yield encoded


def fill(log: Log, settings: Settings, trajectories_count: int, events_each: int) -> int:
    """Interleaves the trajectories, as a busy topic does; returns how many events there are."""
    log.create(settings.topic_specs())
    topic, chains = (
        settings.topic_names.events,
        [(n, chain(f"bench-{n}", events_each)) for n in range(trajectories_count)],
    )
    failed: list[object] = []
    for _ in range(events_each):
        for n, events in chains:
            value, headers, _ = next(events)
            log.append(topic, b"bench-%d" % n, value, headers, lambda position, error: _heard(failed, error))
        while log.flush(60.0) > 0:
            pass
    if failed:
        raise RuntimeError(f"the benchmark's log was not written: {failed[0]}")
    return trajectories_count * events_each


def _heard(failed: list[object], error: object) -> None:
    if error is not None:
        failed.append(error)


def settings_on(url: str, redis_url: str, *, replicas: int = 1) -> Settings:
    topics = {"replication_factor": replicas, "min_insync_replicas": max(1, replicas - 1)}
    return Settings.model_validate(
        {"prefix": f"bench-{secrets.token_hex(3)}", "log": {"url": url}, "redis": {"url": redis_url}, "topics": topics}
    )


class FoldOnly:
    """An owner that decodes, judges and folds, and stores nothing."""

    def __init__(self) -> None:
        self._states: dict[str, State] = {}

    def restore(self, partition: int) -> int:
        return 0

    def fold(self, partition: int, records: Sequence[Record], position: int) -> None:
        for record in records:
            event = decode_event(record.key, record.value, record.headers)
            one = event.envelope.trajectory_id
            self._states[one], _ = fold(self._states.get(one) or State(one), event)

    def forget(self, partition: int) -> None:
        return


def measure_projection() -> list[Measure]:
    with services.kafka() as bootstrap, services.valkey() as redis_url:
        settings = settings_on(f"kafka://{bootstrap}", redis_url)
        log = open_log(settings.log.url)
        count = fill(log, settings, TRAJECTORIES, EVENTS_EACH)
        alone = count / _timed(PartitionLoop(log, settings.topic_names.events, FoldOnly(), clock=SystemClock()))
        client = connect(redis_url, timeout_s=10.0)
        into = trajectories(log, client, settings, clock=SystemClock(), entropy=SystemEntropy())
        stored = count / _timed(into.loop)
        client.close()
        log.close()
    return [
        Measure("projection: loop alone, decode and fold", alone, "events/s", "at least", 25_000),
        Measure("projection: into Redis", stored, "events/s", "at least", 15_000),
    ]


def _timed(loop: PartitionLoop) -> float:
    begun = time.perf_counter()
    loop.drain()
    return time.perf_counter() - begun


def measure_memory() -> list[Measure]:
    """The largest resident size of a projection process that has folded 50,000 trajectories."""
    with services.kafka() as bootstrap, services.valkey() as redis_url:
        settings = settings_on(f"kafka://{bootstrap}", redis_url)
        log = open_log(settings.log.url)
        fill(log, settings, MANY_TRAJECTORIES, MANY_EVENTS_EACH)
        log.close()
        program = [sys.executable, "-m", "benchmarks.projection_process", settings.log.url, redis_url, settings.prefix]
        done = subprocess.run(program, capture_output=True, text=True, timeout=MEMORY_TIMEOUT_S, check=True)
    return [Measure("projection: memory after 50,000 trajectories", float(done.stdout), "MB", "at most", 300)]
