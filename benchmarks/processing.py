"""Processors from Kafka into Redis: events a second on either runner, and a rebuild of a million events."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from benchmarks import services
from benchmarks.measure import Bound, Measure, machine_load
from benchmarks.projecting import settings_on
from tracklog.infra.log.open import open_log
from tracklog.infra.log.port import Delivered, Log
from tracklog.infra.redis_client import RedisClient, connect
from tracklog.infra.settings_sections import Settings
from tracklog.processors.redis_store import live_keys
from tracklog.processors.sample_runs import Made, interleaved, run_of

TURNS = 16
PADDING = 2_400
"""Bytes that make replies longer: events then have some 600 bytes in the middle."""
RUNS_AT_ONCE = 200
EVENTS = 100_000
MILLION = 1_000_000
BULK = {"linger.ms": "20"}
LOOK_S = 0.02
WORK_TIMEOUT_S = 600.0


class Filled(NamedTuple):
    events: int
    bytes_each: float


def made(events_min: int) -> Iterator[Made]:
    """Whole runs of 100 events, 200 of them at a time, interleaved as agents at work would write them."""
    for first in range(0, events_min // 100, RUNS_AT_ONCE):
        names = [f"bench-{n}" for n in range(first, first + RUNS_AT_ONCE)]
        yield from interleaved(
            run_of(name, turns=TURNS, tools=("search", "pay", "book"), padding=PADDING) for name in names
        )


def append(log: Log, topic: str, records: Iterable[Made]) -> Filled:
    failed: list[object] = []
    events = size_bytes = 0
    for one in records:
        log.append(topic, one.key, one.value, one.headers, _noting(failed))
        events += 1
        size_bytes += len(one.value)
        if events % 5_000 == 0:
            _flush(log)
    _flush(log)
    if failed:
        raise RuntimeError(f"the benchmark's log was not written: {failed[0]}")
    return Filled(events, size_bytes / events)


def _noting(failed: list[object]) -> Delivered:
    return lambda _, error: failed.append(error) if error is not None else None


def _flush(log: Log) -> None:
    while log.flush(60.0) > 0:
        pass


class Place(NamedTuple):
    """A log of so many events, and a store."""

    settings: Settings
    redis_url: str
    filled: Filled

    def work(self, *what: str) -> dict[str, Any]:
        """What `processing_process` says of its work: a process of its own, as each would have."""
        done = subprocess.run(
            self._program(*what), stdout=subprocess.PIPE, text=True, timeout=WORK_TIMEOUT_S, check=True
        )
        return dict(json.loads(done.stdout))

    def follow(self, *what: str) -> dict[str, Any]:
        """The same of work that begins before there is a record: under a prefix of its own."""
        settings = settings_on(self.settings.log.url, self.redis_url)
        log = open_log(settings.log.url, kafka_options=BULK)
        log.create(settings.topic_specs())
        records = list(made(self.filled.events))
        program = Place(settings, self.redis_url, self.filled)._program(*what, str(self.filled.events))
        with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as process:
            if process.stdout is None or process.stdout.readline() != "ready\n":
                raise RuntimeError(f"{what} did not begin")
            append(log, settings.topic_names.events, records)
            said, _ = process.communicate(timeout=WORK_TIMEOUT_S)
        log.close()
        return dict(json.loads(said))

    def _program(self, *what: str) -> list[str]:
        program = [sys.executable, "-m", "benchmarks.processing_process", self.settings.log.url, self.redis_url]
        return [*program, self.settings.prefix, *what]

    def emptied(self) -> None:
        client = connect(self.redis_url, timeout_s=10.0)
        client.flushdb()
        client.close()


@contextmanager
def filled(events_min: int) -> Iterator[Place]:
    with services.kafka() as bootstrap, services.valkey() as redis_url:
        settings = settings_on(f"kafka://{bootstrap}", redis_url)
        log = open_log(settings.log.url, kafka_options=BULK)
        log.create(settings.topic_specs())
        found = append(log, settings.topic_names.events, made(events_min))
        log.close()
        yield Place(settings, redis_url, found)


RUNS: tuple[tuple[str, str, str, Bound, float], ...] = (
    ("one that reads replies (spend), native", "native", "spend", "at least", 20_000),
    ("all that come with it, native", "native", "all", "at least", 15_000),
    ("one that reads replies (spend), Faust", "faust", "spend", "shown", 0),
    ("all that come with it, Faust", "faust", "all", "shown", 0),
)


def measure_processors() -> list[Measure]:
    measures: list[Measure] = []
    with filled(EVENTS) as place:
        events = place.filled.events
        measures.append(Measure("processors: size of an event", place.filled.bytes_each, "bytes"))
        for name, runner, what, bound, target in RUNS:
            one = place.follow(runner, what) if runner == "faust" else place.work(runner, what)
            measures.append(Measure(f"processors: {name}", events / one["seconds"], "events/s", bound, target))
            measures.append(Measure("the same: processor time", one["cpu_s"] / events * 1e6, "us/event"))
            place.emptied()
    return [*measures, machine_load()]


def measure_rebuild() -> list[Measure]:
    """Of a million events, while somebody reads what is live."""
    with filled(MILLION) as place:
        place.work("native", "spend")
        with reading(place) as reads:
            one = place.work("rebuild", "spend")
    sizes = one["sizes_mb"]
    events = place.filled.events
    return [
        Measure("rebuild: events", one["records"], "events", "at least", events),
        Measure("rebuild: time", one["seconds"], "s"),
        Measure("rebuild: rate", events / one["seconds"], "events/s"),
        Measure("rebuild: digest equal to what was live", float(one["equal"]), "", "at least", 1),
        Measure("rebuild: memory at a tenth", sizes[0], "MB"),
        Measure("rebuild: memory at the end, 10,000 places of trajectories kept", sizes[-1], "MB"),
        Measure("rebuild: which is more by", sizes[-1] - sizes[0], "MB", "at most", 30),
        Measure("rebuild: reads of the live one meanwhile", reads.count, "", "at least", 100),
        Measure("rebuild: of which found something else than before", reads.wrong, "", "at most", 0),
        machine_load(),
    ]


class Reads:
    """What was read of the live version: all meters of a day, which never change while nothing is appended."""

    def __init__(self) -> None:
        self.count = self.wrong = 0


@contextmanager
def reading(place: Place) -> Iterator[Reads]:
    client = connect(place.redis_url, timeout_s=10.0)
    reads, stop = Reads(), threading.Event()
    expected = meters(client, place.settings.prefix)

    def read() -> None:
        while not stop.wait(LOOK_S):
            reads.count += 1
            reads.wrong += meters(client, place.settings.prefix) != expected

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    try:
        yield reads
    finally:
        stop.set()
        thread.join()
        client.close()


def meters(client: RedisClient, prefix: str) -> dict[str, Any]:
    """Follows the pointer, as every reader does; once more where it moved meanwhile."""
    while True:
        live = live_keys(client, prefix, "spend")
        if live is None:
            raise RuntimeError("nothing is live")
        names = sorted(client.scan_iter(match=live.keys.base(0).replace("{0}", "{*}") + "meter:*", count=1000))
        found = {_relative(name): client.hgetall(name) for name in names}
        if live_keys(client, prefix, "spend") == live:
            return found


def _relative(name: bytes) -> str:
    """Partition and key, without the build."""
    text = name.decode()
    return f"{text.partition('{')[2].partition('}')[0]}:{text.partition('meter:')[2]}"
