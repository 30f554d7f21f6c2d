"""Dispatched calls: from the intent's record to that of the result, and how many a second."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import NamedTuple

from benchmarks import services
from benchmarks.dispatch_process import CALLS, PARTITIONS, TRAJECTORIES
from benchmarks.measure import Measure, cpu_s_of, machine_load
from tracklog.infra.log.open import open_log
from tracklog.infra.log.port import Log
from tracklog.infra.log.ranges import read_range
from tracklog.producers.client import Client
from tracklog.schemas import events as ev
from tracklog.schemas.codec import decode_event
from tracklog.schemas.topics import Topics, topic_specs

TOPICS = Topics()
FEW, MANY = CALLS
WAIT_S = 300.0
WARM_ROUNDS = 2
"""Before anything is measured: a broker that was just started compiles its own code, for a millisecond a call."""
LOOK_S = 0.2
"""Between two looks at what has ended. The times are the log's, so who looks seldom takes less of the machine."""
BARE_BYTES = 600
RECORDS_A_CALL = 8
"""Context, reply, ruling, intent, attempt, outcome, done, result."""


class Member:
    """A worker or a dispatcher in a process of its own."""

    def __init__(self, *arguments: str) -> None:
        program = [sys.executable, "-m", "benchmarks.dispatch_process", *arguments]
        self._process = subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if self._answer() != "ready":
            raise RuntimeError(f"the {arguments[0]} of the benchmark did not start")

    def cpu_s(self) -> float:
        assert self._process.stdin is not None
        print("cpu", file=self._process.stdin, flush=True)
        return float(self._answer())

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        if self._process.wait(60):
            raise RuntimeError("a process of the dispatch benchmark failed")

    def _answer(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


class Rounds(NamedTuple):
    """Of each call the milliseconds from its intent to its result, and the seconds from the first to the last."""

    calls_ms: list[int]
    seconds: float
    cpu_s: tuple[float, float]

    @property
    def p50_ms(self) -> float:
        return sorted(self.calls_ms)[len(self.calls_ms) // 2]


def measure_dispatch() -> list[Measure]:
    with services.kafka_cluster(1) as server, services.scratch() as folder:
        url = f"kafka://{server.bootstrap}"
        (broker,) = server.pids
        with closing(open_log(url)) as log:
            specs = topic_specs(
                TOPICS, partitions=PARTITIONS, replication_factor=1, min_insync_replicas=1, max_message_bytes=1 << 20
            )
            log.create(specs)
            with members(url, str(folder)) as both:
                for go in range(WARM_ROUNDS):
                    asyncio.run(ran(log, both, f"warm{go}", TRAJECTORIES, FEW))
                alone = asyncio.run(ran(log, both, "alone", 1, MANY))
                broker_s = cpu_s_of(broker)
                together = asyncio.run(ran(log, both, "together", TRAJECTORIES, FEW))
                broker_s = cpu_s_of(broker) - broker_s
            bare = bare_loop(log, TRAJECTORIES * FEW)
    rate = len(together.calls_ms) / together.seconds
    each_ms = [1000 * one / len(together.calls_ms) for one in (*together.cpu_s, broker_s)]
    return [
        Measure("dispatched call, intent to result, p50", alone.p50_ms, "ms", "at most", 20),
        Measure(f"the same with {TRAJECTORIES} at once, p50", together.p50_ms, "ms"),
        Measure(f"dispatched calls at {TRAJECTORIES} trajectories", rate, "calls/s", "at least", 400),
        Measure("a bare loop that writes and reads as many records", bare, "calls/s"),
        Measure("dispatched calls to the bare loop", rate / bare, "ratio"),
        Measure("a call: processor time of the worker", each_ms[0], "ms"),
        Measure("a call: processor time of the dispatcher", each_ms[1], "ms"),
        Measure("a call: processor time of the broker", each_ms[2], "ms"),
        machine_load(),
    ]


@contextmanager
def members(url: str, folder: str) -> Iterator[tuple[Member, Member]]:
    with closing(Member("worker", url, folder)) as worker, closing(Member("dispatch", url, folder)) as dispatcher:
        yield worker, dispatcher


async def ran(log: Log, members: tuple[Member, Member], name: str, count: int, calls: int) -> Rounds:
    """So many trajectories with so many calls each, one after the other in each."""
    before = [log.bounds(TOPICS.events, one).end for one in range(PARTITIONS)]
    cpu = [one.cpu_s() for one in members]
    client = Client(log, TOPICS)
    await asyncio.gather(*(client.submit(f"calls-{calls}", "look", id=f"{name}-{one}") for one in range(count)))
    until = time.monotonic() + WAIT_S
    reader = log.reader(TOPICS.events, dict(enumerate(before)), follows=True)
    ended = 0
    while ended < count:
        if time.monotonic() > until:
            raise RuntimeError(f"{ended} of {count} trajectories came to their end within {WAIT_S:g} s")
        await asyncio.sleep(LOOK_S)
        records = await asyncio.to_thread(reader.poll, 5_000, LOOK_S)
        ended += sum(1 for record in records if dict(record.headers)["tl-type"] == b"TaskEnded")
    reader.close()
    worker, dispatcher = (one.cpu_s() - was for one, was in zip(members, cpu, strict=True))
    return rounds(log, before, count * calls, (worker, dispatcher))


def rounds(log: Log, before: list[int], calls: int, cpu_s: tuple[float, float]) -> Rounds:
    intents: dict[tuple[str, str], int] = {}
    calls_ms: list[int] = []
    first, last = 0, 0
    for partition, start in enumerate(before):
        for record in read_range(log, TOPICS.events, partition, start, log.bounds(TOPICS.events, partition).end):
            event = decode_event(record.key, record.value, record.headers)
            body, id = event.body, event.envelope.trajectory_id
            if isinstance(body, ev.ToolIntent):
                intents[id, body.call_id] = record.timestamp_ms
                first = min(first or record.timestamp_ms, record.timestamp_ms)
            elif isinstance(body, ev.ToolResult):
                calls_ms.append(record.timestamp_ms - intents[id, body.call_id])
                last = max(last, record.timestamp_ms)
    if len(calls_ms) != calls:
        raise RuntimeError(f"{len(calls_ms)} calls have a result, wanted are {calls}")
    return Rounds(calls_ms, (last - first) / 1000, cpu_s)


def bare_loop(log: Log, calls: int) -> float:
    """One process that appends the records of so many calls, waits for their reports, and reads them."""
    count, failed = calls * RECORDS_A_CALL, []
    starts = {one: log.bounds(TOPICS.quarantine, one).end for one in range(PARTITIONS)}
    value = bytes(BARE_BYTES)
    began = time.perf_counter()
    for number in range(count):
        key = f"trajectory-{number % TRAJECTORIES}".encode()
        log.append(TOPICS.quarantine, key, value, (), lambda _, error: failed.append(error) if error else None)
    if log.flush(60.0) or failed:
        raise RuntimeError("the bare loop could not write its records")
    reader, read = log.reader(TOPICS.quarantine, starts), 0
    while read < count:
        read += len(reader.poll(5_000, 1.0))
    reader.close()
    return calls / (time.perf_counter() - began)
