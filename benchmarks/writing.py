"""The writer against the bare client: events a second, barriers, steps (issue "Foundation")."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from benchmarks.measure import Measure, milliseconds_p50
from tracklog.consumers.wiring import BULK_LINGER_MS
from tracklog.infra.clock import SystemClock, SystemEntropy
from tracklog.infra.log.open import open_log
from tracklog.infra.log.port import Log
from tracklog.producers.producer import EventProducer
from tracklog.producers.writer import TrajectoryWriter
from tracklog.schemas.events import Observed, TaskStarted
from tracklog.schemas.topics import Topics, topic_specs
from tracklog.schemas.values import Body, Driver, ObservedKind

TRAJECTORIES = 128
EVENTS_EACH = 400
STEPS_EACH = 40
EVENTS_A_STEP = 4
LATENCIES = 400
EVENT = Observed(kind=ObservedKind.STEP, name="step", occurrence=1, value=Body.of("x" * 450))
"""Encodes to about 600 bytes with its envelope."""
EVENT_BYTES = 600
NOW_US = 1_700_000_000_000_000


@asynccontextmanager
async def producing(url: str, *, bulk: bool = False) -> AsyncIterator[tuple[Log, EventProducer, str]]:
    topics = Topics(f"bench-{secrets.token_hex(3)}")
    log = open_log(url, kafka_options={"linger.ms": str(BULK_LINGER_MS)} if bulk else None)
    log.create(
        topic_specs(topics, partitions=12, replication_factor=1, min_insync_replicas=1, max_message_bytes=1 << 20)
    )
    async with EventProducer(log, topics=topics, clock=SystemClock(), entropy=SystemEntropy()) as producer:
        yield log, producer, topics.events
    log.close()


async def claim_many(producer: EventProducer) -> list[TrajectoryWriter]:
    ids = [f"bench-{n}" for n in range(TRAJECTORIES)]
    await producer.prefetch(ids)
    writers = await asyncio.gather(*(producer.claim(one, owner="bench", driver=Driver.LIBRARY) for one in ids))
    for writer in writers:
        await writer.append(TaskStarted(driver=Driver.LIBRARY, task=Body.of("bench"), agent="bench"))
    return writers


async def _pump(writer: TrajectoryWriter) -> None:
    for _ in range(EVENTS_EACH):
        await writer.append(EVENT)
    await writer.barrier()


async def _step(writer: TrajectoryWriter) -> None:
    for _ in range(STEPS_EACH):
        for _ in range(EVENTS_A_STEP):
            await writer.append(EVENT)
        await writer.barrier()


async def _rate(writers: list[TrajectoryWriter], work: Any, count: int) -> float:
    begun = time.perf_counter()
    await asyncio.gather(*(work(writer) for writer in writers))
    return len(writers) * count / (time.perf_counter() - begun)


async def _barriers(writer: TrajectoryWriter) -> list[float]:
    found = []
    for _ in range(LATENCIES):
        begun = time.perf_counter()
        await writer.append(EVENT)
        await writer.barrier()
        found.append(time.perf_counter() - begun)
    return found


async def measure_steps(url: str) -> tuple[float, float]:
    """(steps a second, p50 of a barrier in milliseconds), as sessions write."""
    async with producing(url) as (_, producer, _topic):
        writers = await claim_many(producer)
        await _rate(writers, _step, STEPS_EACH)
        steps = max([await _rate(writers, _step, STEPS_EACH) for _ in range(3)])
        return steps, milliseconds_p50(await _barriers(writers[0]))


async def measure_events(url: str) -> float:
    """Events a second, as an import writes: batches may wait for company."""
    async with producing(url, bulk=True) as (_, producer, _topic):
        writers = await claim_many(producer)
        await _rate(writers, _step, STEPS_EACH)
        return max([await _rate(writers, _pump, EVENTS_EACH) for _ in range(4)])


def bare_kafka(bootstrap: str) -> tuple[float, float]:
    """The client alone, same bytes and settings: (records a second, p50 of produce and ack in milliseconds)."""
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    topic = f"bare-{secrets.token_hex(3)}"
    config = {"min.insync.replicas": "1", "flush.messages": "1", "message.timestamp.type": "LogAppendTime"}
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 12, 1, config=config)])[topic].result(30)
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "acks": "all",
            "partitioner": "murmur2_random",
            "compression.type": "zstd",
            "linger.ms": 0,
        }
    )
    _bare_latency(producer, topic)  # the broker's first requests are slow
    latency = _bare_latency(producer, topic)
    return _bare_rate(producer, topic), latency


def _bare_rate(producer: Any, topic: str) -> float:
    value, rates = b"x" * EVENT_BYTES, []
    for _ in range(3):
        begun, count = time.perf_counter(), TRAJECTORIES * EVENTS_EACH
        for n in range(count):
            while True:
                try:
                    producer.produce(topic, value, key=b"bench-%d" % (n % TRAJECTORIES), on_delivery=_heard)
                    break
                except BufferError:
                    producer.poll(0.01)
            producer.poll(0)
        producer.flush(60)
        rates.append(count / (time.perf_counter() - begun))
    return max(rates)


def _bare_latency(producer: Any, topic: str) -> float:
    durations = []
    for _ in range(LATENCIES):
        begun = time.perf_counter()
        producer.produce(topic, b"x" * EVENT_BYTES, key=b"bench-0", on_delivery=_heard)
        while len(producer):
            producer.poll(1.0)
        durations.append(time.perf_counter() - begun)
    return milliseconds_p50(durations)


def _heard(error: object, message: object) -> None:
    if error is not None:
        raise RuntimeError(f"the bare producer failed: {error}")


def measure_kafka(bootstrap: str) -> list[Measure]:
    bare_rate, bare_ack = bare_kafka(bootstrap)
    steps, barrier = asyncio.run(measure_steps(f"kafka://{bootstrap}"))
    events = asyncio.run(measure_events(f"kafka://{bootstrap}"))
    return [
        Measure("Kafka: bare producer", bare_rate, "records/s"),
        Measure("Kafka: writer, 600-byte events", events, "events/s", "at least", 20_000),
        Measure("Kafka: writer to bare producer", events / bare_rate, "ratio", "at least", 0.2),
        Measure("Kafka: bare produce and ack, p50", bare_ack, "ms"),
        Measure("Kafka: barrier, p50", barrier, "ms"),
        Measure("Kafka: barrier to bare ack", barrier / bare_ack, "ratio", "at most", 1.5),
        Measure("Kafka: steps at 128 trajectories", steps, "steps/s", "at least", 3_000),
    ]


def measure_sqlite(path: str) -> list[Measure]:
    steps, barrier = asyncio.run(measure_steps(f"sqlite:{path}"))
    events = asyncio.run(measure_events(f"sqlite:{path}"))
    return [
        Measure("SQLite: writer, 600-byte events", events, "events/s"),
        Measure("SQLite: barrier, p50", barrier, "ms", "at most", 1.5),
        Measure("SQLite: steps at 128 trajectories", steps, "steps/s", "at least", 3_000),
    ]
