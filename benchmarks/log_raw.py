"""`python -m benchmarks.log_raw`: the logs by themselves, without events, against a bare client in the same run."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from confluent_kafka import Producer

from benchmarks import services
from benchmarks.measure import Measure, milliseconds_p50, table
from tracklog.infra.log.open import open_log
from tracklog.infra.log.port import Log, Position
from tracklog.infra.log.ranges import append_and_wait
from tracklog.schemas.errors import AppendError, LogQueueFull
from tracklog.schemas.topics import TopicSpec

RECORDS = 60_000
SINGLES = 400
TRAJECTORIES = 128
STEPS_FOR_S = 3.0
PARTITIONS = 12
TOPIC = "raw"
VALUE = os.urandom(300) * 2
HEADERS = (("tl-type", b"ToolIntent"), ("tl-schema", b"12345678"), ("tl-hash", bytes(range(32))))
KEYS = [f"trajectory-{number}".encode() for number in range(TRAJECTORIES)]
TIMEOUT_S = 60.0


def measure_log(log: Log, name: str) -> list[Measure]:
    log.create([TopicSpec(TOPIC, PARTITIONS, 1, {"message.timestamp.type": "LogAppendTime"})])
    append_and_wait(log, TOPIC, KEYS[0], VALUE, HEADERS, timeout_s=TIMEOUT_S)
    return [
        Measure(f"{name}: appends, pipelined", max(bulk(log) for _ in range(3)), "records/s"),
        Measure(f"{name}: append + report, p50", milliseconds_p50(singles(log)), "ms"),
        Measure(f"{name}: append + read back, p50", milliseconds_p50(read_backs(log)), "ms"),
        Measure(f"{name}: bounds, p50", milliseconds_p50(timed(SINGLES, lambda: log.bounds(TOPIC, 0))), "ms"),
        Measure(f"{name}: steps of 4 records and a barrier, 128 at once", steps(log), "steps/s"),
        Measure(f"{name}: read", reading(log), "records/s"),
    ]


def bulk(log: Log) -> float:
    def put(key: bytes) -> None:
        log.append(TOPIC, key, VALUE, HEADERS, ignore)

    return rate(put, lambda: log.flush(TIMEOUT_S), LogQueueFull, lambda: log.flush(0.01))


def rate(
    put: Callable[[bytes], Any], finish: Callable[[], int], full: type[Exception], wait: Callable[[], Any]
) -> float:
    began = time.perf_counter()
    for number in range(RECORDS):
        while True:
            try:
                put(KEYS[number % TRAJECTORIES])
                break
            except full:
                wait()
    assert finish() == 0
    return RECORDS / (time.perf_counter() - began)


def ignore(position: Position | None, error: AppendError | None) -> None:
    assert error is None


def timed(count: int, call: Callable[[], Any]) -> list[float]:
    durations = []
    for _ in range(count):
        began = time.perf_counter()
        call()
        durations.append(time.perf_counter() - began)
    return durations


def singles(log: Log) -> list[float]:
    return timed(SINGLES, lambda: append_and_wait(log, TOPIC, KEYS[1], VALUE, HEADERS, timeout_s=TIMEOUT_S))


def read_backs(log: Log) -> list[float]:
    def append_and_read() -> None:
        position = append_and_wait(log, TOPIC, KEYS[1], VALUE, HEADERS, timeout_s=TIMEOUT_S)
        reader = log.reader(TOPIC, {position.partition: position.offset})
        (record,) = reader.poll(1, TIMEOUT_S)
        assert record.offset == position.offset
        reader.close()

    return timed(SINGLES, append_and_read)


def steps(log: Log) -> float:
    """Every trajectory begins its next step when the report of the last record of its step has come."""
    until = time.perf_counter() + STEPS_FOR_S
    finished = threading.Semaphore(0)
    counts = [0] * TRAJECTORIES

    def step(number: int) -> None:
        def delivered(position: Position | None, error: AppendError | None) -> None:
            assert error is None
            counts[number] += 1
            if time.perf_counter() > until:
                finished.release()
            else:
                step(number)

        for _ in range(3):
            log.append(TOPIC, KEYS[number], VALUE, HEADERS, ignore)
        log.append(TOPIC, KEYS[number], VALUE, HEADERS, delivered)

    began = time.perf_counter()
    for number in range(TRAJECTORIES):
        step(number)
    for _ in range(TRAJECTORIES):
        assert finished.acquire(timeout=TIMEOUT_S)
    return sum(counts) / (time.perf_counter() - began)


def reading(log: Log) -> float:
    ends = {partition: log.bounds(TOPIC, partition).end for partition in range(PARTITIONS)}
    reader = log.reader(TOPIC, dict.fromkeys(ends, 0))
    began = time.perf_counter()
    count = 0
    while any(reader.position(partition) < end for partition, end in ends.items()):
        count += len(reader.poll(5_000, 1.0))
    reader.close()
    return count / (time.perf_counter() - began)


def bare_kafka(bootstrap: str) -> Iterable[Measure]:
    """The same bytes and settings, with a delivery callback that does nothing."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "partitioner": "murmur2_random",
            "compression.type": "zstd",
            "linger.ms": 0,
        }
    )
    headers: list[tuple[str, str | bytes | None]] = list(HEADERS)
    polls = iter(range(10**9))

    def put(key: bytes) -> None:
        producer.produce(TOPIC, VALUE, key, headers=headers, on_delivery=lambda error, message: None)
        if next(polls) % 100 == 0:
            producer.poll(0)

    def one() -> None:
        producer.produce(TOPIC, VALUE, KEYS[1], headers=headers)
        producer.flush(TIMEOUT_S)

    best = max(rate(put, lambda: producer.flush(TIMEOUT_S), BufferError, lambda: producer.poll(0.01)) for _ in range(3))
    yield Measure("bare producer: pipelined", best, "records/s")
    yield Measure("bare producer: produce + ack, p50", milliseconds_p50(timed(SINGLES, one)), "ms")


def main() -> None:
    measures: list[Measure] = []
    with services.scratch() as folder:
        log = open_log(f"sqlite:{folder / 'log.db'}")
        measures += measure_log(log, "sqlite")
        log.close()
    with services.kafka() as bootstrap:
        log = open_log(f"kafka://{bootstrap}")
        measures += measure_log(log, "kafka")
        log.close()
        measures += bare_kafka(bootstrap)
    print(table(measures))


if __name__ == "__main__":
    main()
