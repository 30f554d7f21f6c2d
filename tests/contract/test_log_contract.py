"""One contract, every log. A case that one of them cannot pass is a fault of that log, or of the port."""

from __future__ import annotations

import os
import threading
import time

import pytest

from tests.contract.log_cases import LogCase, Recorder, drive
from tracklog.infra.log.partitioner import partition_of
from tracklog.infra.log.port import Bounds, Log, Position, Record
from tracklog.infra.log.ranges import append_and_wait, read_range
from tracklog.infra.log.record_size import RECORD_BYTES_MAX
from tracklog.schemas.errors import (
    AppendError,
    ClientFatal,
    InvalidTrajectoryId,
    OffsetTrimmed,
    RangeError,
    RecordTooLarge,
    TopicMissing,
)
from tracklog.schemas.topics import TopicSpec

HEADERS = (("tl-type", b"ToolIntent"), ("tl-hash", bytes(range(32))), ("empty", b""), ("tl-type", b"again"))


class Reports:
    """Collects delivery reports; `wait` is bounded."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.positions: list[Position] = []
        self.errors: list[AppendError] = []
        self.threads: set[int] = set()

    def __call__(self, position: Position | None, error: AppendError | None) -> None:
        assert (position is None) != (error is None)
        with self.changed:
            self.threads.add(threading.get_ident())
            if position is not None:
                self.positions.append(position)
            if error is not None:
                self.errors.append(error)
            self.changed.notify_all()

    def wait(self, count: int, timeout_s: float = 20.0) -> None:
        with self.changed:
            got = self.changed.wait_for(lambda: len(self.positions) + len(self.errors) >= count, timeout_s)
        assert got, f"{len(self.positions)} positions, {len(self.errors)} errors of {count}"


def put(log: Log, topic: str, key: bytes, value: bytes) -> Position:
    return append_and_wait(log, topic, key, value, timeout_s=20)


def test_first_record_lands_at_partition_0_offset_0_and_reads_back_equal(log: Log, log_case: LogCase) -> None:
    topic = log_case.topic(log)
    before_ms = int(time.time() * 1000) - 5_000

    position = append_and_wait(log, topic, b"run-1", b"value", HEADERS, timeout_s=20)

    assert (position.partition, position.offset) == (0, 0)
    assert before_ms <= position.timestamp_ms <= before_ms + 60_000
    record = Record(topic, 0, 0, position.timestamp_ms, b"run-1", b"value", HEADERS)
    assert list(read_range(log, topic, 0, 0, 1)) == [record]


def test_empty_value_and_no_headers_are_kept_as_they_are(log: Log, log_case: LogCase) -> None:
    topic = log_case.topic(log)
    put(log, topic, b"k", b"")
    record = next(read_range(log, topic, 0, 0, 1))
    assert record.value == b""
    assert record.headers == ()


def test_records_of_a_key_keep_their_order_and_positions_agree_with_reading(log: Log, log_case: LogCase) -> None:
    topic = log_case.topic(log, partitions=4)
    keys = [f"run-{number}".encode() for number in range(20)]
    reports: dict[bytes, Reports] = {key: Reports() for key in keys}

    for step in range(25):
        for key in keys:
            log.append(topic, key, str(step).encode(), (), reports[key])
    assert log.flush(20) == 0

    read: dict[bytes, list[Record]] = {key: [] for key in keys}
    for partition in range(4):
        for record in read_range(log, topic, partition, 0, log.bounds(topic, partition).end):
            assert record.key is not None
            read[record.key].append(record)
    for key in keys:
        assert [record.value for record in read[key]] == [str(step).encode() for step in range(25)]
        assert [(r.partition, r.offset, r.timestamp_ms) for r in read[key]] == reports[key].positions
        assert not reports[key].errors
        assert {record.partition for record in read[key]} == {partition_of(key, 4)}


def test_reports_come_from_one_thread_that_is_not_the_callers(log: Log, log_case: LogCase) -> None:
    topic = log_case.topic(log)
    reports = Reports()
    for _ in range(50):
        log.append(topic, b"k", b"v", (), reports)
    reports.wait(50)
    assert len(reports.threads) == 1
    assert threading.get_ident() not in reports.threads


def test_topic_must_exist_and_is_created_once(log: Log, log_case: LogCase) -> None:
    with pytest.raises(TopicMissing, match="no-such-topic"):
        log.append("no-such-topic", b"k", b"v", (), Reports())
    with pytest.raises(TopicMissing):
        log.describe("no-such-topic")
    with pytest.raises(TopicMissing):
        log.bounds("no-such-topic", 0)

    topic = log_case.topic(log, partitions=3)
    assert log.create([TopicSpec(topic, 7, 1)]) == []
    assert log.partition_count(topic) == 3
    assert log_case.open().partition_count(topic) == 3


def test_description_tells_what_was_created(log: Log, log_case: LogCase) -> None:
    topic = log_case.topic(log, partitions=3)
    info = log.describe(topic)
    assert (info.spec.name, info.spec.partitions, info.spec.replication_factor) == (topic, 3, 1)
    assert info.spec.config["message.timestamp.type"] == "LogAppendTime"
    assert info.topic_id
    assert info.cluster_id
    assert info.topic_id != log.describe(log_case.topic(log)).topic_id


def test_empty_key_is_refused(log: Log, log_case: LogCase) -> None:
    with pytest.raises(InvalidTrajectoryId):
        log.append(log_case.topic(log), b"", b"v", (), Reports())


@pytest.mark.parametrize("headers", [(), HEADERS])
def test_size_limit_is_the_same_everywhere(log: Log, log_case: LogCase, headers: tuple[tuple[str, bytes], ...]) -> None:
    topic = log_case.topic(log)
    room = RECORD_BYTES_MAX - len(b"key") - sum(len(name) + len(value) + 10 for name, value in headers)
    for size in (room - 1, room):
        append_and_wait(log, topic, b"key", os.urandom(size), headers, timeout_s=20)
    with pytest.raises(RecordTooLarge) as caught:
        log.append(topic, b"key", bytes(room + 1), headers, Reports())
    assert caught.value.definite
    assert log.bounds(topic, 0).end == 2


def test_bounds_of_an_empty_partition(log: Log, log_case: LogCase) -> None:
    topic = log_case.topic(log)
    assert log.bounds(topic, 0) == Bounds(0, 0)
    assert list(read_range(log, topic, 0, 0, 10)) == []
    with pytest.raises(RangeError):
        log.bounds(topic, 1)


def test_ends_of_partitions_are_those_of_their_bounds_and_are_asked_for_anew(log: Log, log_case: LogCase) -> None:
    topic = log_case.topic(log, partitions=3)
    assert log.ends(topic, range(3)) == {0: 0, 1: 0, 2: 0}
    assert log.ends(topic, []) == {}
    for number in range(6):
        put(log, topic, f"key-{number}".encode(), b"v")
    log.delete_records(topic, {2: log.bounds(topic, 2).end})
    assert log.ends(topic, {0, 2}) == {one: log.bounds(topic, one).end for one in (0, 2)}
    assert sum(log.ends(topic, range(3)).values()) == 6
    with pytest.raises(RangeError):
        log.ends(topic, [0, 3])
    with pytest.raises(TopicMissing):
        log.ends("no-such-topic", [0])


def test_deleted_prefix_moves_the_first_offset_and_reading_below_it_is_an_error(log: Log, log_case: LogCase) -> None:
    topic = log_case.topic(log)
    for number in range(10):
        put(log, topic, b"k", str(number).encode())

    log.delete_records(topic, {0: 4})
    log.delete_records(topic, {0: 2})

    assert log.bounds(topic, 0) == Bounds(4, 10)
    assert [record.value for record in read_range(log, topic, 0, 0, 6)] == [b"4", b"5"]
    reader = log.reader(topic, {0: 3})
    with pytest.raises(OffsetTrimmed, match="offset 3 "):
        drive_reader(reader.poll, until=lambda records: bool(records))
    reader.close()
    with pytest.raises(RangeError):
        log.delete_records(topic, {0: 11})


def test_everything_may_be_deleted(log: Log, log_case: LogCase) -> None:
    topic = log_case.topic(log)
    put(log, topic, b"k", b"v")
    log.delete_records(topic, {0: 1})
    assert log.bounds(topic, 0) == Bounds(1, 1)
    assert put(log, topic, b"k", b"v").offset == 1


def test_reading_beyond_the_end_is_an_error(log: Log, log_case: LogCase) -> None:
    topic = log_case.topic(log)
    put(log, topic, b"k", b"v")
    reader = log.reader(topic, {0: 5})
    with pytest.raises(OffsetTrimmed, match="offset 5 "):
        drive_reader(reader.poll, until=lambda records: bool(records))
    reader.close()


def drive_reader(poll, until, timeout_s: float = 10.0) -> list[Record]:  # type: ignore[no-untyped-def]
    deadline = time.monotonic() + timeout_s
    records: list[Record] = []
    while not until(records):
        assert time.monotonic() < deadline, f"only {len(records)} records"
        records += poll(100, 0.2)
    return records


def test_offset_of_a_time_is_the_first_record_at_or_after_it(log: Log, log_case: LogCase) -> None:
    topic = log_case.topic(log)
    times = []
    for _ in range(3):
        times.append(put(log, topic, b"k", b"v").timestamp_ms)
        while int(time.time() * 1000) <= times[-1] + 1:
            threading.Event().wait(0.001)

    assert [log.offset_at(topic, 0, at) for at in times] == [0, 1, 2]
    assert log.offset_at(topic, 0, times[0] - 1_000) == 0
    assert log.offset_at(topic, 0, times[0] + 1) == 1
    assert log.offset_at(topic, 0, times[-1] + 60_000) == 3


def test_reader_gets_all_partitions_in_order_and_reaches_the_end(log: Log, log_case: LogCase) -> None:
    topic = log_case.topic(log, partitions=3)
    for number in range(60):
        log.append(topic, f"run-{number}".encode(), str(number).encode(), (), Reports())
    log.flush(20)
    ends = {partition: log.bounds(topic, partition).end for partition in range(3)}

    reader = log.reader(topic, dict.fromkeys(range(3), 0))
    records = drive_reader(reader.poll, until=lambda records: len(records) >= 60)

    assert {partition: reader.position(partition) for partition in range(3)} == ends
    for partition in range(3):
        offsets = [record.offset for record in records if record.partition == partition]
        assert offsets == list(range(ends[partition]))
    reader.close()


def test_reader_takes_no_more_than_asked_and_loses_nothing(log: Log, log_case: LogCase) -> None:
    topic = log_case.topic(log, partitions=2)
    for number in range(40):
        log.append(topic, f"run-{number}".encode(), b"v", (), Reports())
    log.flush(20)
    reader = log.reader(topic, {0: 0, 1: 0})
    seen: set[tuple[int, int]] = set()
    deadline = time.monotonic() + 20
    while len(seen) < 40:
        assert time.monotonic() < deadline
        batch = reader.poll(7, 0.2)
        assert len(batch) <= 7
        seen |= {(record.partition, record.offset) for record in batch}
    reader.close()


def test_reader_waits_for_what_comes_and_seeks_back(log: Log, log_case: LogCase) -> None:
    topic = log_case.topic(log)
    reader = log.reader(topic, {0: 0})
    assert reader.poll(10, 0.0) == []
    timer = threading.Timer(0.1, lambda: log_case.opened[0].append(topic, b"k", b"late", (), Reports()))
    timer.start()

    records = drive_reader(reader.poll, until=lambda records: len(records) == 1)

    assert records[0].value == b"late"
    reader.seek(0, 0)
    assert reader.position(0) == 0
    assert drive_reader(reader.poll, until=lambda records: len(records) == 1) == records
    timer.join()
    reader.close()


def test_reader_that_follows_keeps_following(log: Log, log_case: LogCase) -> None:
    """A Kafka reader changes its consumer when nothing came for a while."""
    topic = log_case.topic(log)
    put(log, topic, b"k", b"0")
    reader = log.reader(topic, {0: 0})
    drive_reader(reader.poll, until=lambda records: len(records) == 1)
    for _ in range(8):
        assert reader.poll(10, 0.2) == []
    put(log, topic, b"k", b"1")
    (record,) = drive_reader(reader.poll, until=lambda records: len(records) == 1)
    assert (record.offset, reader.position(0)) == (1, 2)
    reader.close()


def test_readers_one_after_the_other_see_only_their_own(log: Log, log_case: LogCase) -> None:
    topics = [log_case.topic(log) for _ in range(2)]
    for number in range(5):
        for topic in topics:
            put(log, topic, b"k", f"{topic}/{number}".encode())
    for round_ in range(6):
        topic = topics[round_ % 2]
        reader = log.reader(topic, {0: 2})
        records = drive_reader(reader.poll, until=lambda records: len(records) == 3)
        assert [record.value for record in records] == [f"{topic}/{number}".encode() for number in (2, 3, 4)]
        reader.close()


def test_foreign_bytes_pass_through(log: Log, log_case: LogCase) -> None:
    topic = log_case.topic(log)
    log_case.foreign(log, topic, None, None, ())
    log_case.foreign(log, topic, b"\xff\xfe", b"\x00not ours", ())
    put(log, topic, b"k", b"ours")
    records = list(read_range(log, topic, 0, 0, 3))
    assert [(record.key, record.value) for record in records] == [
        (None, None),
        (b"\xff\xfe", b"\x00not ours"),
        (b"k", b"ours"),
    ]


def test_second_handle_reads_and_appends_to_the_same_log(log: Log, log_case: LogCase) -> None:
    topic = log_case.topic(log)
    other = log_case.open()
    assert put(log, topic, b"k", b"one").offset == 0
    assert put(other, topic, b"k", b"two").offset == 1
    assert [record.value for record in read_range(log, topic, 0, 0, 2)] == [b"one", b"two"]


def test_members_split_the_partitions_and_start_where_they_are_told(log: Log, log_case: LogCase) -> None:
    topic = log_case.topic(log, partitions=4)
    for number in range(40):
        put(log, topic, f"run-{number}".encode(), b"v")
    ends = {partition: log.bounds(topic, partition).end for partition in range(4)}
    first, second = Recorder(starts=lambda p: ends[p] - 1), Recorder(starts=lambda p: ends[p] - 1)
    group = f"{log_case.prefix}.split"

    one = log.group(group, topic, first)
    read = drive([one], until=lambda: len(first.owned) == 4)
    read += drive([one], until=lambda: all(one.position(p) == ends[p] for p in range(4)))
    assert {record.partition: record.offset for record in read} == {p: end - 1 for p, end in ends.items()}

    two = log_case.open().group(group, topic, second)
    drive([one, two], until=lambda: len(first.owned) == 2 and len(second.owned) == 2)
    assert first.owned | second.owned == {0, 1, 2, 3}
    assert not first.owned & second.owned

    one.close()
    assert first.told[-1][0] == "revoked"
    assert not first.owned
    drive([two], until=lambda: len(second.owned) == 4)
    two.close()


def test_commits_are_kept_and_those_of_former_owners_are_left_out(log: Log, log_case: LogCase) -> None:
    topic = log_case.topic(log, partitions=2)
    for number in range(20):
        put(log, topic, f"run-{number}".encode(), b"v")
    group = f"{log_case.prefix}.commits"
    first, second = Recorder(), Recorder()
    one = log.group(group, topic, first)
    drive([one], until=lambda: len(first.owned) == 2)
    assert one.committed([0, 1]) == {0: None, 1: None}
    one.commit({0: 0, 1: 3})
    assert one.committed([0, 1]) == {0: 0, 1: 3}

    first.on_revoked = lambda partitions: one.commit(dict.fromkeys(partitions, 5))
    two = log_case.open().group(group, topic, second)
    drive([one, two], until=lambda: len(first.owned) == 1 and len(second.owned) == 1)
    (moved,) = second.owned
    assert two.committed([moved]) == {moved: 5}

    one.commit({moved: 1})
    assert two.committed([moved]) == {moved: 5}
    two.commit({moved: 6})
    assert one.committed([moved]) == {moved: 6}
    first.on_revoked = lambda partitions: None
    one.close()
    two.close()


def test_member_pauses_resumes_and_seeks(log: Log, log_case: LogCase) -> None:
    topic = log_case.topic(log)
    for number in range(5):
        put(log, topic, b"k", str(number).encode())
    recorder = Recorder()
    member = log.group(f"{log_case.prefix}.pause", topic, recorder)
    read = drive([member], until=lambda: bool(recorder.owned))
    read += drive([member], until=lambda: member.position(0) == 5)
    assert [record.offset for record in read] == [0, 1, 2, 3, 4]

    member.pause([0])
    put(log, topic, b"k", b"5")
    for _ in range(5):
        assert member.poll(10, 0.1) == []
    member.resume([0])
    assert [record.offset for record in drive([member], until=lambda: member.position(0) == 6)] == [5]

    member.seek(0, 3)
    assert member.position(0) == 3
    assert [record.offset for record in drive([member], until=lambda: member.position(0) == 6)] == [3, 4, 5]
    member.close()


def test_closing_reports_every_append_and_ends_the_log(log: Log, log_case: LogCase) -> None:
    topic = log_case.topic(log)
    reports = Reports()
    for _ in range(500):
        log.append(topic, b"k", b"v", (), reports)

    log.close()

    reports.wait(500, timeout_s=0)
    assert len(reports.positions) == 500
    with pytest.raises(ClientFatal):
        log.append(topic, b"k", b"v", (), reports)
    log.close()


def test_closed_log_takes_nothing_even_if_it_never_did(log: Log, log_case: LogCase) -> None:
    topic = log_case.topic(log)
    log.close()
    with pytest.raises(ClientFatal):
        log.append(topic, b"k", b"v", (), Reports())
    with pytest.raises(ClientFatal):
        log.ping(10)


def test_ping_answers_within_its_bound(log: Log) -> None:
    began = time.monotonic()
    log.ping(10)
    assert time.monotonic() - began < 10


def test_url_names_the_log(log: Log, log_case: LogCase) -> None:
    assert log.url == log_case.url
