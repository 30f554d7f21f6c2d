"""From librdkafka's messages to records and positions; shared by readers and group members."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError

from tracklog.infra.log.kafka_errors import FORBIDDEN, GONE, OUT_OF_RANGE, request_error
from tracklog.infra.log.offsets import offset_trimmed
from tracklog.infra.log.port import Record


def fetch(consumer: Consumer, max_records: int, timeout_s: float) -> Sequence[Any]:
    """Messages and events: waits for the first one, then takes what is there already.

    The client waits whole milliseconds, and for less than one not at all: who asked again until then would keep a
    processor busy. So a wait is rounded up.
    """
    first = consumer.poll(math.ceil(timeout_s * 1000) / 1000)
    if first is None:
        return ()
    if max_records == 1:
        return (first,)
    return [first, *consumer.consume(max_records - 1, 0)]


def take(
    messages: Sequence[Any],
    topic: str,
    positions: dict[int, int],
    url: str,
    is_gone: Callable[[str], bool],
    forbidden: Collection[int] = FORBIDDEN,
) -> list[Record]:
    """The records among `messages`; moves `positions`, also past what is no record (control, aborted).

    `is_gone` confirms that the topic does not exist: a broker that has just woken may say so of any topic.
    `forbidden`: the codes that say that this is not allowed.
    Messages of partitions that are not in `positions` were fetched for an earlier assignment and are dropped.
    """
    records = []
    for message in messages:
        error = message.error()
        partition = message.partition()
        offset = message.offset()
        if error is not None:
            _take_event(error, topic, partition, offset, positions, url, is_gone, forbidden)
            continue
        if partition not in positions:
            continue
        headers = message.headers()
        records.append(
            Record(
                topic,
                partition,
                offset,
                message.timestamp()[1],
                message.key(),
                message.value(),
                tuple(headers) if headers else (),
            )
        )
        positions[partition] = offset + 1
    return records


def _take_event(
    error: KafkaError,
    topic: str,
    partition: int,
    offset: int,
    positions: dict[int, int],
    url: str,
    is_gone: Callable[[str], bool],
    forbidden: Collection[int],
) -> None:
    code = error.code()
    if code == KafkaError._PARTITION_EOF:
        if partition in positions:
            positions[partition] = max(positions[partition], offset)
    elif code in OUT_OF_RANGE:
        if partition in positions:
            raise offset_trimmed(topic, partition, positions[partition])
    elif error.fatal() or code in forbidden or (code in GONE and is_gone(topic)):
        raise request_error(error, f"reading {topic}", url)
    # Everything else is librdkafka telling of its retries; the error callback has counted it.
