"""Ranges: partition 0 and offset 0, empty ones, clipped ones, filters, folds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.chains import Made, append_all, interleaved, run_of
from tests.support.memory_logs import make_topics, memory_log
from tests.support.tampering import decoded
from tracklog.consumers.copying import TopicCopy, check_target
from tracklog.consumers.event_json import SAMPLE
from tracklog.consumers.replay import Filter, Replayed, follow, replay, resolve, states_at_end
from tracklog.consumers.where import Where
from tracklog.infra.clock import ManualClock, SystemClock
from tracklog.infra.log.partitioner import partition_of
from tracklog.infra.log.port import Log
from tracklog.processors.quarantine import SOURCE_OFFSET, SOURCE_PARTITION, SOURCE_TOPIC
from tracklog.schemas.errors import InputError, RangeError, TopicMissing
from tracklog.schemas.fold import fold_all
from tracklog.schemas.state import State
from tracklog.schemas.topics import Topics

TOPIC = Topics().events
CHAINS = [run_of(f"run-{number}") for number in range(6)]
RECORDS = interleaved(CHAINS)
ALL = Filter()


@pytest.fixture
def log() -> Iterator[Log]:
    log = memory_log(3)
    append_all(log, TOPIC, RECORDS)
    yield log
    log.close()


def offsets(found: Iterator[Replayed]) -> list[int]:
    return [one.record.offset for one in found]


def test_without_a_range_it_is_everything_once(log: Log) -> None:
    found = list(replay(log, TOPIC, resolve(log, TOPIC), ALL))

    assert len(found) == len(RECORDS)
    assert len({(one.record.partition, one.record.offset) for one in found}) == len(RECORDS)


def test_partition_zero_and_offset_zero_are_a_partition_and_an_offset(log: Log) -> None:
    ranges = resolve(log, TOPIC, partition=0, frm="0", to="2")

    found = list(replay(log, TOPIC, ranges, ALL))

    assert [(one.record.partition, one.record.offset) for one in found] == [(0, 0), (0, 1)]


def test_minus_n_is_the_last_n_of_each_partition(log: Log) -> None:
    for one in resolve(log, TOPIC, frm="-2"):
        assert one.end - one.start == 2
        assert one.clipped == ""


def test_more_than_there_is_from_the_end_is_all_there_is(log: Log) -> None:
    (one,) = resolve(log, TOPIC, partition=0, frm="-99999")

    assert (one.start, one.clipped) == (0, "")


def test_an_empty_range_is_empty(log: Log) -> None:
    ranges = resolve(log, TOPIC, partition=0, frm="0", to="0")

    assert all(one.empty for one in ranges)
    assert list(replay(log, TOPIC, ranges, ALL)) == []
    assert all(one.empty for one in resolve(log, TOPIC, frm="end"))


def test_what_is_no_longer_or_not_yet_kept_is_said(log: Log) -> None:
    end = log.bounds(TOPIC, 0).end
    log.delete_records(TOPIC, {0: 3})

    (one,) = resolve(log, TOPIC, partition=0, frm="1", to=str(end + 5))

    assert (one.start, one.end) == (3, end)
    assert f"asked for from 1 to {end + 5}, kept are offsets 3 to {end}" in one.clipped
    assert offsets(replay(log, TOPIC, [one], ALL)) == list(range(3, end))


def test_an_offset_without_a_partition_is_refused(log: Log) -> None:
    with pytest.raises(RangeError, match="one partition"):
        resolve(log, TOPIC, frm="5")


@pytest.mark.parametrize("partition", [-1, 3])
def test_a_partition_that_is_not_there_is_refused(log: Log, partition: int) -> None:
    with pytest.raises(RangeError, match="partitions 0 to 2"):
        resolve(log, TOPIC, partition=partition)


@pytest.mark.parametrize("bound", ["", "yesterday", "1.5", "--3"])
def test_a_bound_that_is_none_is_refused(log: Log, bound: str) -> None:
    with pytest.raises(RangeError, match="is no bound"):
        resolve(log, TOPIC, partition=0, frm=bound)


def test_a_trajectory_needs_no_partition(log: Log) -> None:
    ranges = resolve(log, TOPIC, trajectory_id="run-4")

    found = list(replay(log, TOPIC, ranges, Filter("run-4")))

    assert [one.event.envelope.seq for one in found if one.event] == list(range(len(CHAINS[4].records)))
    assert ranges[0].partition == partition_of(b"run-4", 3)


def test_a_condition_is_asked_of_each_event(log: Log) -> None:
    where = Where("type == 'ToolIntent' && turn == 2", SAMPLE)

    found = list(replay(log, TOPIC, resolve(log, TOPIC), Filter(None, where)))

    assert len(found) == len(CHAINS)
    assert {one.event.name for one in found if one.event} == {"ToolIntent"}


@pytest.mark.parametrize("condition", ["inbox_id.seq == 0", "body.cost_micro_usd > 100", "body.result.text == 'x'"])
def test_a_field_without_a_value_is_a_field_that_is_not_there(log: Log, condition: str) -> None:
    found = list(replay(log, TOPIC, resolve(log, TOPIC), Filter(None, Where(condition, SAMPLE))))

    assert {one.event.name for one in found if one.event} <= {"ModelReplied"}


def test_foreign_bytes_are_shown_with_their_reason_and_stop_nothing() -> None:
    log = memory_log(1)
    append_all(log, TOPIC, [RECORDS[0], Made(b"k", b"hello", (), b""), RECORDS[1]])

    found = list(replay(log, TOPIC, resolve(log, TOPIC), ALL))

    assert [one.event is None for one in found] == [False, True, False]
    assert "68656c6c" in found[1].reason
    assert found[1].as_map()["offset"] == 1


def test_a_fold_is_the_state_at_the_end_of_the_range_from_the_very_beginning(log: Log) -> None:
    partition = partition_of(b"run-1", 3)
    mine = [
        one.record.offset for one in replay(log, TOPIC, resolve(log, TOPIC, trajectory_id="run-1"), Filter("run-1"))
    ]
    ranges = resolve(log, TOPIC, trajectory_id="run-1", frm=str(mine[5]), to=str(mine[9]))

    (state,) = states_at_end(log, TOPIC, ranges, Filter("run-1"))

    assert state == fold_all(State("run-1"), map(decoded, CHAINS[1].records[:9]))
    assert ranges[0].partition == partition


def test_following_goes_on_with_what_is_appended_after_the_end() -> None:
    log = memory_log(1)
    append_all(log, TOPIC, RECORDS[:4])
    ranges = resolve(log, TOPIC)
    append_all(log, TOPIC, RECORDS[4:6])

    following = follow(log, TOPIC, ranges, ALL, clock=SystemClock(), for_s=None)

    assert [next(following).record.offset for _ in range(2)] == [4, 5]
    following.close()  # type: ignore[attr-defined]


def test_following_ends_when_its_time_is_up() -> None:
    log = memory_log(1)

    assert list(follow(log, TOPIC, resolve(log, TOPIC), ALL, clock=ManualClock(), for_s=0.0)) == []


def test_a_copy_says_where_each_record_came_from_and_folds_to_the_same(log: Log) -> None:
    make_topics(log, "copy", 1)
    copy = TopicCopy(log, "copy.events")

    assert copy.append_all(one.record for one in replay(log, TOPIC, resolve(log, TOPIC), ALL)) == len(RECORDS)

    copies = list(replay(log, "copy.events", resolve(log, "copy.events"), ALL))
    first = copies[0].record
    assert dict(first.headers)[SOURCE_TOPIC] == TOPIC.encode()
    assert (dict(first.headers)[SOURCE_PARTITION], dict(first.headers)[SOURCE_OFFSET]) == (b"0", b"0")
    for chain in CHAINS:
        events = [one.event for one in copies if one.record.key == chain.trajectory_id.encode() and one.event]
        assert fold_all(State(chain.trajectory_id), events) == fold_all(
            State(chain.trajectory_id), map(decoded, chain.records)
        )


def test_a_copy_of_a_copy_names_its_nearest_source_once(log: Log) -> None:
    make_topics(log, "copy", 1)
    first = next(replay(log, TOPIC, resolve(log, TOPIC), ALL)).record
    TopicCopy(log, "copy.events").append_all([first])
    copied = next(replay(log, "copy.events", resolve(log, "copy.events"), ALL)).record
    TopicCopy(log, "copy.inbox").append_all([copied])

    names = [name for name, _ in next(replay(log, "copy.inbox", resolve(log, "copy.inbox"), ALL)).record.headers]

    assert names.count(SOURCE_TOPIC) == 1


def test_a_copy_into_the_source_or_its_installation_needs_force(log: Log) -> None:
    for target in Topics().all:
        with pytest.raises(InputError, match="--to-topic"):
            check_target(Topics(), TOPIC, target, force=False)
        check_target(Topics(), TOPIC, target, force=True)
    check_target(Topics(), TOPIC, "elsewhere", force=False)
    with pytest.raises(TopicMissing) as caught:
        TopicCopy(log, "elsewhere")
    assert "apply" not in caught.value.hint, "applying the topics of this installation would not make it"
    with pytest.raises(TopicMissing) as caught:
        TopicCopy(log, "other.events")
    assert "--prefix other topics apply" in caught.value.hint


def test_a_copy_onto_records_needs_force(log: Log) -> None:
    make_topics(log, "copy", 1)
    first = next(replay(log, TOPIC, resolve(log, TOPIC), ALL)).record
    assert TopicCopy(log, "copy.events").append_all([first]) == 1

    with pytest.raises(InputError, match="holds 1 records already"):
        TopicCopy(log, "copy.events")

    assert TopicCopy(log, "copy.events", force=True).append_all([first]) == 1
