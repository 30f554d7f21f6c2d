"""A broker frozen past the delivery time-out: the outcome is unknown, and after its waking the record is there."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from tests.contract.log_cases import LogCase
from tracklog.infra.log.kafka import KafkaLog
from tracklog.infra.log.ranges import append_and_wait, read_range
from tracklog.infra.stack.kafka_server import KafkaServer
from tracklog.infra.stack.process import wait_until
from tracklog.schemas.errors import AppendError, AppendUnknown

pytestmark = [pytest.mark.kafka, pytest.mark.faults]

TIMED_OUT = {"delivery.timeout.ms": "2000", "socket.timeout.ms": "30000", "request.timeout.ms": "30000"}
PURGED = {"delivery.timeout.ms": "60000", "socket.timeout.ms": "1000", "request.timeout.ms": "1000"}
"""The request times out first: the record goes back into the queue, and is purged from there."""


@pytest.fixture(scope="module")
def server(kafka_cluster_factory: Callable[..., KafkaServer]) -> KafkaServer:
    return kafka_cluster_factory()


@pytest.mark.parametrize(("options", "code"), [(TIMED_OUT, "_MSG_TIMED_OUT"), (PURGED, "_PURGE_QUEUE")])
def test_append_at_a_frozen_broker_is_unknown_and_may_be_stored(
    server: KafkaServer, fresh_prefix: str, options: Mapping[str, str], code: str
) -> None:
    case = LogCase("kafka", f"kafka://{server.bootstrap}", fresh_prefix)
    other = case.open()
    topic = case.topic(other)
    case.kafka_options = options
    log = case.open()
    assert isinstance(log, KafkaLog)
    append_and_wait(log, topic, b"k", b"before", timeout_s=20)
    errors: list[AppendError | None] = []
    (node,) = server.nodes

    node.process.freeze()
    try:
        log.append(topic, b"k", b"during", (), lambda position, error: errors.append(error))
        if code == "_PURGE_QUEUE":
            assert wait_until(lambda: log.stats.errors > 0, 20)
            log._producers.close(0.0)
        assert wait_until(lambda: bool(errors), 20)
    finally:
        node.process.thaw()

    assert isinstance(errors[0], AppendUnknown)
    assert not errors[0].definite
    assert code in str(errors[0])
    assert wait_until(lambda: other.bounds(topic, 0).end == 2, 20)
    assert [record.value for record in read_range(other, topic, 0, 0, 2)] == [b"before", b"during"]
    case.close()
