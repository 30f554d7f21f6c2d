"""How soon an event is seen, and where the time goes: from the call that appends it, over its acknowledgement, to Redis
and to a client of `watch`, at a steady rate."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import NamedTuple

from benchmarks import services
from benchmarks.measure import Measure, machine_load
from benchmarks.projecting import chain, settings_on
from tracklog.infra.clock import SystemClock
from tracklog.infra.log.open import open_log
from tracklog.infra.log.port import Delivered, Log
from tracklog.infra.settings_sections import Settings
from tracklog.infra.wiring import kafka_options
from tracklog.schemas.topics import TopicSpec

EVENTS_PER_S = 1_000
SECONDS = 16
TRAJECTORIES = 200
WARM_UP_S = 6
"""Events of the first seconds are not counted: members are still joining, and a new broker is still being compiled."""
STARTED_S = 60.0
SEEN_S = 120.0
REDIS_MS, WATCH_MS = 15.0, 10.0
SYNCS = 200
_US_PER_MS = 1_000

Times = dict[tuple[int, int], int]
"""By partition and offset, in microseconds since 1970."""
Started = Callable[[ExitStack], str]


class Situation(NamedTuple):
    """Where the log is. `wanted`: whether the targets are asked of it."""

    name: str
    brokers: Started
    replicas: int
    synced: bool
    wanted: bool


def _one(stack: ExitStack) -> str:
    return stack.enter_context(services.kafka())


def _three(stack: ExitStack) -> str:
    return stack.enter_context(services.kafka_cluster()).bootstrap


SITUATIONS = (
    Situation("one broker, each append on its disk", _one, 1, synced=True, wanted=True),
    Situation("three brokers, acks=all", _three, 3, synced=False, wanted=True),
    Situation("for reference: one broker, nothing durable", _one, 1, synced=False, wanted=False),
)


def measure_live() -> list[Measure]:
    """Kafka and Redis on this machine; producer, processor, watcher and looker are a process each."""
    found = [measure for one in SITUATIONS for measure in _measured(one)]
    return [*found, machine_load()]


def _measured(situation: Situation) -> list[Measure]:
    count = EVENTS_PER_S * SECONDS
    with ExitStack() as stack:
        bootstrap, redis_url = situation.brokers(stack), stack.enter_context(services.valkey())
        settings = settings_on(f"kafka://{bootstrap}", redis_url, replicas=situation.replicas)
        log = open_log(settings.log.url, kafka_options=kafka_options(settings))
        stack.callback(log.close)
        log.create([_as(situation, spec) for spec in settings.topic_specs()])
        with _beside("fold", settings, count) as folding:
            with _beside("look", settings, count) as looking, _beside("watch", settings, count) as watching:
                given, acknowledged = _append(log, settings.topic_names.events, count)
                visible, watched = _said(looking), _said(watching)
            folding.terminate()
            folded = _said(folding)
    times = {"acknowledged": acknowledged, **visible, **watched, **folded}
    return list(_legs(situation, given, times))


def _as(situation: Situation, spec: TopicSpec) -> TopicSpec:
    config = {name: value for name, value in spec.config.items() if situation.synced or name != "flush.messages"}
    return replace(spec, config=config)


def _legs(situation: Situation, given: Times, times: Mapping[str, Times]) -> Iterator[Measure]:
    first_us = min(given.values()) + WARM_UP_S * 1_000_000
    counted = [place for place, given_us in given.items() if given_us >= first_us]

    def leg(frm: str, to: str, percent: int = 50, target_ms: float | None = None) -> Measure:
        begun, ended = given if frm == "append" else times[frm], times[to]
        took = [ended[place] - begun[place] for place in counted]
        value = statistics.quantiles(took, n=100)[percent - 1] / _US_PER_MS
        name = f"... {frm} -> {to}, p{percent}"
        if target_ms is None or not situation.wanted:
            return Measure(name, value, "ms")
        return Measure(name, value, "ms", "at most", target_ms)

    yield Measure(f"{situation.name}: a sync of this disk beside it, p50", _sync_ms(), "ms")
    yield leg("append", "acknowledged")
    yield leg("acknowledged", "read by the processor")
    yield leg("read by the processor", "visible in Redis")
    yield leg("acknowledged", "visible in Redis")
    yield leg("append", "visible in Redis", target_ms=REDIS_MS)
    yield leg("append", "visible in Redis", 99)
    yield leg("acknowledged", "read by the watcher")
    yield leg("read by the watcher", "at a `watch` client")
    yield leg("append", "at a `watch` client", target_ms=WATCH_MS)
    yield leg("append", "at a `watch` client", 99)


def _sync_ms() -> float:
    """What it takes to have a few hundred bytes on this disk, by itself."""
    with services.scratch() as folder:
        file = os.open(folder / "synced", os.O_CREAT | os.O_WRONLY)
        took: list[float] = []
        for _ in range(SYNCS):
            os.write(file, bytes(600))
            begun_s = time.perf_counter()
            os.fsync(file)
            took.append(time.perf_counter() - begun_s)
        os.close(file)
    return statistics.median(took) * 1000


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


@contextmanager
def _beside(role: str, settings: Settings, count: int) -> Iterator[subprocess.Popen[str]]:
    given = [role, settings.log.url, settings.redis.url.get_secret_value(), settings.prefix, str(count)]
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


def _said(process: subprocess.Popen[str]) -> dict[str, Times]:
    out, _ = process.communicate(timeout=SEEN_S)
    said = json.loads(out)
    print(f"   {said.pop('cpu')}", file=sys.stderr)
    return {name: {(partition, offset): at for partition, offset, at in seen} for name, seen in said.items()}
