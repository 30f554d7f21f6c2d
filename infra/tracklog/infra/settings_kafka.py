"""Options of the Kafka client that are not for settings to change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

KAFKA_OPTIONS_FIXED: Final[Mapping[str, str]] = {
    "bootstrap.servers": "it comes from `log.url`",
    "metadata.broker.list": "it comes from `log.url`",
    "delivery.timeout.ms": "set `writer.delivery_timeout_s`",
    "message.timeout.ms": "set `writer.delivery_timeout_s`",
    "message.max.bytes": "set `topics.max_message_bytes`",
    "queue.buffering.max.messages": "set `writer.queue_records_max`",
    "acks": "an acknowledgement by fewer replicas is no barrier",
    "request.required.acks": "an acknowledgement by fewer replicas is no barrier",
    "enable.idempotence": "without it a retry can overtake what it repeats",
    "partitioner": "another partitioner would split a trajectory over two partitions",
    "transactional.id": "nothing of Tracklog's uses transactions",
    "isolation.level": "readers see committed records only",
    "auto.offset.reset": "every assignment sets its offset",
    "enable.auto.commit": "state and position are stored together, never apart",
    "enable.auto.offset.store": "state and position are stored together, never apart",
    "allow.auto.create.topics": "topics are created by `tracklog topics apply` and checked",
    "group.id": "it is made from `prefix`",
}
"""Client options that carry a guarantee or have a setting of their own: refused in `[kafka]`, and why."""
