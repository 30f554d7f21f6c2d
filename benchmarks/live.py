"""How soon an event is seen: from the call that appends it to Redis, and to a client of `watch`, at a steady rate."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks import services
from benchmarks.measure import Measure, machine_load
from benchmarks.projecting import chain, settings_on
from tracklog.infra.clock import SystemClock
from tracklog.infra.log.open import open_log
from tracklog.infra.log.port import Delivered, Log
from tracklog.infra.settings_sections import Settings

EVENTS_PER_S = 1_000
SECONDS = 20
TRAJECTORIES = 200
WARM_UP = 2_000
"""The first events are not counted: members are still joining."""
STARTED_S = 60.0
SEEN_S = 120.0
_US_PER_MS = 1_000


def measure_live() -> list[Measure]:
    """Kafka and Redis on this machine; producer, processor, watcher and looker are a process each."""
    with services.kafka() as bootstrap, services.valkey() as redis_url:
        settings = settings_on(f"kafka://{bootstrap}", redis_url)
        log = open_log(settings.log.url)
        log.create(settings.topic_specs())
        count = EVENTS_PER_S * SECONDS
        with _beside("fold", settings, redis_url, count) as folding:
            with (
                _beside("look", settings, redis_url, count) as looking,
                _beside("watch", settings, redis_url, count) as watching,
            ):
                given, acknowledged = _append(log, settings.topic_names.events, count)
                in_redis, watched = (_seen(one) for one in (looking, watching))
            folding.terminate()
        log.close()
    rate = f"{EVENTS_PER_S:,} events/s"
    found = {"visible in Redis": (in_redis, 15.0), "at a `watch` client": (watched, 10.0)}
    measures = [Measure(f"live, {rate}: append -> acknowledged, p50", _p(acknowledged, given, 50), "ms")]
    for name, (seen, target_ms) in found.items():
        measures.append(Measure(f"... append -> {name}, p50", _p(seen, given, 50), "ms", "at most", target_ms))
        measures.append(Measure(f"... append -> {name}, p99", _p(seen, given, 99), "ms"))
    return [*measures, machine_load()]


Times = dict[tuple[int, int], int]
"""By partition and offset, in microseconds since 1970."""


def _append(log: Log, topic: str, count: int) -> tuple[Times, Times]:
    """When each event was given to the log, and when it was acknowledged."""
    clock, pause = SystemClock(), threading.Event()
    chains = [(b"bench-%d" % n, chain(f"bench-{n}", count // TRAJECTORIES)) for n in range(TRAJECTORIES)]
    ready = [(key, next(events)) for _ in range(count // TRAJECTORIES) for key, events in chains]
    given, acknowledged = Times(), Times()

    def report_of(given_us: int) -> Delivered:
        def delivered(position: object, error: object) -> None:
            if error is not None or position is None:
                raise RuntimeError(f"the benchmark's log was not written: {error}")
            place = (position.partition, position.offset)  # type: ignore[attr-defined]
            given[place], acknowledged[place] = given_us, clock.now_us()

        return delivered

    begun_s = time.perf_counter()
    for number, (key, encoded) in enumerate(ready):
        rest_s = begun_s + number / EVENTS_PER_S - time.perf_counter()
        if rest_s > 0:
            pause.wait(rest_s)
        log.append(topic, key, encoded.value, encoded.headers, report_of(clock.now_us()))
    while log.flush(60.0) > 0:
        pass
    return given, acknowledged


def _p(seen: Times, given: Times, percent: int) -> float:
    """A percentile in milliseconds, without the warm-up."""
    first_us = sorted(given.values())[WARM_UP]
    took = [seen[place] - given_us for place, given_us in given.items() if given_us >= first_us]
    return statistics.quantiles(took, n=100)[percent - 1] / _US_PER_MS


@contextmanager
def _beside(role: str, settings: Settings, redis_url: str, count: int) -> Iterator[subprocess.Popen[str]]:
    given = [role, settings.log.url, redis_url, settings.prefix, str(count)]
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.live_process", *given], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            raise RuntimeError(f"{role} did not start")
        yield process
    finally:
        process.terminate()
        process.wait(STARTED_S)


def _seen(process: subprocess.Popen[str]) -> Times:
    out, _ = process.communicate(timeout=SEEN_S)
    return {(partition, offset): now_us for partition, offset, now_us in json.loads(out)}
