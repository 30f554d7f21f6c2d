"""What only the Kafka log meets: transactions, absent brokers, both group protocols, fatal client errors."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Producer

from tests.contract.log_cases import LogCase, Recorder, drive
from tests.support.fatal_client import inject_fatal_error
from tracklog.infra.log.kafka import KafkaLog
from tracklog.infra.log.kafka_admin import REQUEST_TIMEOUT_S
from tracklog.infra.log.partitioner import partition_of
from tracklog.infra.log.port import Bounds, Log, Position, Record
from tracklog.infra.log.ranges import append_and_wait, read_range, resolve_range
from tracklog.infra.stack.kafka_server import KafkaServer
from tracklog.infra.stack.process import wait_until
from tracklog.schemas.errors import (
    AppendError,
    AppendUnknown,
    LogQueueFull,
    LogUnavailable,
    SettingsError,
    TopicMissing,
)
from tracklog.schemas.topics import TopicSpec

pytestmark = pytest.mark.kafka


@pytest.fixture
def case(kafka_bootstrap: str, fresh_prefix: str) -> Iterator[LogCase]:
    case = LogCase("kafka", f"kafka://{kafka_bootstrap}", fresh_prefix)
    yield case
    case.close()


def transactional(case: LogCase) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": case.url.removeprefix("kafka://"),
            "transactional.id": f"{case.prefix}-{case.topics}",
        }
    )
    producer.init_transactions(20)
    return producer


def put(log: Log, topic: str, value: bytes) -> Position:
    return append_and_wait(log, topic, b"k", value, timeout_s=20)


def await_end(log: Log, topic: str, end: int) -> None:
    """The markers of a transaction are written a moment after its end was acknowledged."""
    assert wait_until(lambda: log.bounds(topic, 0) == Bounds(0, end), 10)


def values(records: Iterator[Record]) -> list[bytes | None]:
    return [record.value for record in records]


def test_open_transaction_hides_what_follows_until_it_is_decided(case: LogCase) -> None:
    log = case.open()
    topic = case.topic(log)
    put(log, topic, b"before")
    others = transactional(case)
    others.begin_transaction()
    others.produce(topic, b"theirs", b"k", 0)
    assert others.flush(10) == 0
    put(log, topic, b"after")

    assert log.bounds(topic, 0) == Bounds(0, 1)
    assert values(read_range(log, topic, 0, 0, 10, timeout_s=5)) == [b"before"]

    others.commit_transaction(10)
    await_end(log, topic, 4)
    assert values(read_range(log, topic, 0, 0, 10, timeout_s=5)) == [b"before", b"theirs", b"after"]


def test_aborted_records_and_markers_are_holes_that_positions_pass(case: LogCase) -> None:
    log = case.open()
    topic = case.topic(log)
    put(log, topic, b"0")
    others = transactional(case)
    for end in (others.abort_transaction, others.commit_transaction):
        others.begin_transaction()
        for number in range(3):
            others.produce(topic, f"{end.__name__}-{number}".encode(), b"k", 0)
        assert others.flush(10) == 0
        end(10)

    await_end(log, topic, 9)  # 0, three aborted, their marker, three committed, their marker
    began = time.monotonic()
    records = list(read_range(log, topic, 0, 0, 9, timeout_s=5))
    assert [record.offset for record in records] == [0, 5, 6, 7]
    assert list(read_range(log, topic, 0, 1, 5, timeout_s=5)) == []
    assert list(read_range(log, topic, 0, 8, 9, timeout_s=5)) == []
    assert time.monotonic() - began < 4, "a hole was waited for"

    reader = log.reader(topic, {0: 0})
    deadline = time.monotonic() + 10
    while reader.position(0) < 9:
        assert time.monotonic() < deadline
        reader.poll(100, 0.2)
    reader.close()
    assert resolve_range(log, topic, 0, "-2", "end")[:2] == (7, 9)


def test_member_reaches_the_end_over_a_marker(case: LogCase) -> None:
    log = case.open()
    topic = case.topic(log)
    others = transactional(case)
    others.begin_transaction()
    others.produce(topic, b"theirs", b"k", 0)
    others.commit_transaction(10)
    recorder = Recorder()
    member = log.group(f"{case.prefix}.marker", topic, recorder)
    drive([member], until=lambda: bool(recorder.owned) and member.position(0) == 2)
    member.close()


def test_log_append_time_of_the_broker_is_in_the_position(case: LogCase) -> None:
    log = case.open()
    topic = case.topic(log)
    position = put(log, topic, b"v")
    (record,) = read_range(log, topic, 0, 0, 1)
    assert record.timestamp_ms == position.timestamp_ms


def test_absent_broker_is_an_error_within_ten_seconds_that_names_it() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{held.getsockname()[1]}"
        log = KafkaLog(address, options={})
        began = time.monotonic()
        with pytest.raises(LogUnavailable, match=address):
            log.ping(2)
        assert time.monotonic() - began < 4
        assert REQUEST_TIMEOUT_S + 1 < 10
        log.close()


def test_full_queue_is_back_pressure(case: LogCase) -> None:
    case.kafka_options = {"queue.buffering.max.messages": "5", "linger.ms": "500"}
    log = case.open()
    topic = case.topic(log)
    outcomes: list[Position | AppendError | None] = []
    queued = 0
    full: LogQueueFull | None = None
    while full is None and queued < 50:
        try:
            log.append(topic, b"k", b"v", (), lambda position, error: outcomes.append(position or error))
            queued += 1
        except LogQueueFull as error:
            full = error
    assert full is not None
    assert full.definite
    assert log.flush(20) == 0
    assert len(outcomes) == queued == log.bounds(topic, 0).end


def test_records_that_wait_for_those_before_them_come_in_order(case: LogCase) -> None:
    log = case.open()
    topic = case.topic(log)
    outcomes: list[Position | AppendError | None] = []
    for number in range(60):
        log.append(topic, b"k", str(number).encode(), (), lambda position, error: outcomes.append(position or error))
    assert log.flush(20) == 0
    assert [one.offset for one in outcomes if isinstance(one, Position)] == list(range(60))
    assert [record.value for record in read_range(log, topic, 0, 0, 60)] == [str(one).encode() for one in range(60)]


def test_closing_ends_what_waits_too(case: LogCase, monkeypatch: pytest.MonkeyPatch) -> None:
    case.kafka_options = {"linger.ms": "60000"}
    monkeypatch.setattr("tracklog.infra.log.kafka.CLOSE_TIMEOUT_S", 0.2)
    log = case.open()
    topic = case.topic(log)
    outcomes: list[Position | AppendError | None] = []
    for number in range(12):
        log.append(topic, b"k", str(number).encode(), (), lambda position, error: outcomes.append(position or error))
    log.close()
    assert [type(one) for one in outcomes] == [AppendUnknown] * 12


def test_appends_over_several_connections_keep_the_order_of_each_key_and_land_where_they_belong(case: LogCase) -> None:
    case.kafka_options = {"producer.connections": "3"}
    log = case.open()
    assert isinstance(log, KafkaLog)
    topic, keys, reports = case.topic(log, partitions=5), [b"k%d" % n for n in range(40)], list[Position]()
    log.append(topic, keys[0], b"0", (), lambda position, error: reports.append(position) if position else None)
    assert log.flush(20) == 0
    assert len(log._producers._all) == 1, "one is made when it is needed"

    for number in range(1, 20):
        for key in keys if number > 1 else keys[1:]:
            log.append(
                topic, key, b"%d" % number, (), lambda position, error: reports.append(position) if position else None
            )
    assert log.flush(20) == 0

    assert len(log._producers._all) == 3
    found: dict[bytes, list[int]] = {}
    for partition in range(5):
        for record in read_range(log, topic, partition, 0, log.bounds(topic, partition).end):
            assert record.key is not None
            assert partition_of(record.key, 5) == partition
            found.setdefault(record.key, []).append(int(record.value or b""))
    assert all(numbers == sorted(numbers) for numbers in found.values())
    assert sum(map(len, found.values())) == len(reports) == 1 + 39 + 18 * 40


def test_missing_topic_is_not_created_by_asking(case: LogCase) -> None:
    log = case.open()
    name = f"{case.prefix}.missing"
    for ask in (log.partition_count, log.describe, lambda topic: log.append(topic, b"k", b"v", (), lambda p, e: None)):
        with pytest.raises(TopicMissing, match=name):
            ask(name)


def test_impossible_topic_is_a_settings_error(case: LogCase) -> None:
    log = case.open()
    with pytest.raises(SettingsError, match="replication"):
        log.create([TopicSpec(f"{case.prefix}.seven", 1, 7)])
    with pytest.raises(SettingsError, match="cleanup"):
        log.create([TopicSpec(f"{case.prefix}.odd", 1, 1, {"cleanup.policy": "sometimes"})])


def test_fatal_error_of_the_producer_is_repaired_and_nothing_is_left_without_a_report(case: LogCase) -> None:
    log = case.open()
    assert isinstance(log, KafkaLog)
    topic = case.topic(log)
    put(log, topic, b"before")
    reports = threading.Semaphore(0)
    outcomes: list[Position | AppendError] = []

    def delivered(position: Position | None, error: AppendError | None) -> None:
        result = position if position is not None else error
        assert result is not None
        outcomes.append(result)
        reports.release()

    queued = 0
    for number in range(2_000):
        if number == 1_000:
            inject_fatal_error(log)
        try:
            log.append(topic, b"k", str(number).encode(), (), delivered)
        except LogQueueFull:
            continue
        queued += 1
    for _ in range(queued):
        assert reports.acquire(timeout=20)

    deadline = time.monotonic() + 20
    while True:
        try:
            after = put(log, topic, b"after")
            break
        except LogQueueFull:
            assert time.monotonic() < deadline
    stored = {record.value for record in read_range(log, topic, 0, 0, after.offset + 1)}
    acknowledged = [outcome for outcome in outcomes if isinstance(outcome, Position)]
    failed = [outcome for outcome in outcomes if isinstance(outcome, AppendError)]
    assert len(stored) >= len(acknowledged) + 2
    assert all(not error.definite for error in failed)
    assert log.stats.producer_rebuilds == 1


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_forced_group_protocol_moves_partitions_and_keeps_commits(case: LogCase, protocol: str) -> None:
    case.kafka_options = {"group.protocol": protocol, **QUICK_CLASSIC}
    share_partitions(case, protocol)


def test_broker_without_kip_848_is_met_with_the_classic_protocol(
    kafka_cluster_factory: Callable[..., KafkaServer], fresh_prefix: str
) -> None:
    server = kafka_cluster_factory(overrides={"group.coordinator.rebalance.protocols": "classic"})
    case = LogCase("kafka", f"kafka://{server.bootstrap}", fresh_prefix, QUICK_CLASSIC)
    try:
        share_partitions(case, "found-out")
    finally:
        case.close()


QUICK_CLASSIC = {"heartbeat.interval.ms": "300", "session.timeout.ms": "3000"}


def share_partitions(case: LogCase, protocol: str) -> None:
    log = case.open()
    topic = case.topic(log, partitions=4)
    first, second = Recorder(), Recorder()
    one = log.group(f"{case.prefix}.{protocol}", topic, first)
    drive([one], until=lambda: len(first.owned) == 4)
    first.on_revoked = lambda partitions: one.commit(dict.fromkeys(partitions, 0))
    two = case.open().group(f"{case.prefix}.{protocol}", topic, second)
    drive([one, two], until=lambda: len(first.owned) == 2 and len(second.owned) == 2)
    assert not first.owned & second.owned
    assert set(two.committed(sorted(second.owned)).values()) == {0}
    two.close()
    drive([one], until=lambda: len(first.owned) == 4)
    one.close()
