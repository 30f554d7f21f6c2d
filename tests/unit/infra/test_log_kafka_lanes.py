"""What waits in front of librdkafka: order, how much is handed over at once, and that nothing is forgotten."""

from __future__ import annotations

from tracklog.infra.log.kafka_lanes import HAND_OVER_MAX, IN_FLIGHT_MAX, MANY, Lane, Lanes, Waiting


def record(number: int) -> Waiting:
    return Waiting("topic", b"k", str(number).encode(), (), lambda position, error: None)


def waiting(lanes: Lanes, count: int, under_way: int = IN_FLIGHT_MAX) -> Lane:
    lane = lanes.of("topic", 0)
    lane.under_way = under_way
    for number in range(count):
        lanes.wait(lane, record(number))
    return lane


def numbers(records: list[Waiting]) -> list[int]:
    return [int(one.value) for one in records]


def test_a_lane_is_open_until_the_client_has_as_many_as_it_sends() -> None:
    lane = Lanes().of("topic", 0)
    for _ in range(IN_FLIGHT_MAX):
        assert lane.is_open
        lane.under_way += 1
    assert not lane.is_open


def test_nothing_overtakes_what_waits() -> None:
    lanes = Lanes()
    lane = waiting(lanes, 2, under_way=0)
    assert not lane.is_open
    assert numbers([lanes.next(lane), lanes.next(lane)]) == [0, 1]
    assert lane.is_open


def test_a_partition_is_a_lane_of_its_own() -> None:
    lanes = Lanes()
    waiting(lanes, 3)
    assert lanes.of("topic", 1).is_open
    assert lanes.of("other", 0).is_open
    assert lanes.of("topic", 0) is lanes.of("topic", 0)


def test_the_client_is_given_no_more_than_it_sends_at_once() -> None:
    lane = waiting(Lanes(), 2 * IN_FLIGHT_MAX)
    assert lane.room == 0
    lane.under_way = 2
    assert lane.room == IN_FLIGHT_MAX - 2


def test_many_that_wait_are_one_large_batch() -> None:
    lanes = Lanes()
    assert waiting(lanes, MANY, under_way=0).room == IN_FLIGHT_MAX
    lane = waiting(lanes, 1, under_way=0)
    assert lane.room == MANY + 1
    assert waiting(lanes, HAND_OVER_MAX, under_way=0).room == HAND_OVER_MAX


def test_a_lane_is_due_when_a_report_makes_room() -> None:
    lanes = Lanes()
    lane = waiting(lanes, 1, under_way=IN_FLIGHT_MAX + 1)
    lanes.reported(lane)
    assert lanes.due() == []
    lanes.reported(lane)
    assert lanes.due() == [lane]
    assert not lanes.any_due


def test_a_report_of_a_lane_without_anything_waiting_is_nobodys_turn() -> None:
    lanes = Lanes()
    lane = waiting(lanes, 0, under_way=1)
    lanes.reported(lane)
    assert not lanes.any_due
    assert lane.under_way == 0


def test_what_is_put_back_is_first_again_and_due() -> None:
    lanes = Lanes()
    lane = waiting(lanes, 3, under_way=0)
    lanes.put_back(lane, lanes.next(lane))
    assert lanes.due() == [lane]
    assert numbers([lanes.next(lane) for _ in range(3)]) == [0, 1, 2]


def test_what_waits_is_counted() -> None:
    lanes = Lanes()
    lane = waiting(lanes, 3)
    assert (lanes.records, lanes.size_bytes) == (3, 6)
    lanes.put_back(lane, lanes.next(lane))
    lanes.next(lane)
    assert (lanes.records, lanes.size_bytes) == (2, 4)
    assert numbers(lanes.lose(lane)) == [1, 2]
    assert (lanes.records, lanes.size_bytes) == (0, 0)


def test_giving_up_ends_all_lanes_and_begins_new_ones() -> None:
    lanes = Lanes()
    before = waiting(lanes, 2)
    for number in range(2, 4):
        lanes.wait(lanes.of("topic", 1), record(number))
    assert numbers(lanes.give_up()) == [0, 1, 2, 3]
    assert lanes.records == 0
    assert not lanes.any_due
    assert lanes.of("topic", 0) is not before
    assert lanes.of("topic", 0).is_open
