"""When a trajectory may be gone on with, by which of the two clocks."""

from __future__ import annotations

from tracklog.infra.log.port import Record
from tracklog.producers.roster import NOBODYS_MAX, Arrival, Known, Later, Now, Roster, Standings, Work
from tracklog.producers.spans import Span
from tracklog.schemas import inbox
from tracklog.schemas.codec import decode_inbox, encode_record, single_object
from tracklog.schemas.envelope import InboxEnvelope
from tracklog.schemas.lifecycle import Parked
from tracklog.schemas.values import Body, Role

HOUR_US = 3_600 * 1_000_000
START = Now(us=1_700_000_000_000_000, s=50.0)
OPEN = Known(started=True, owned=True)


def roster_with(known: Known) -> Roster:
    roster = Roster(tries_max=5)
    roster.assigned(0, Standings({"trip-1": known}, set(), {"trip-1": (Span(3, 8),)}, end=9))
    return roster


def test_a_pause_is_neither_longer_nor_shorter_when_the_wall_clock_is_set() -> None:
    for jump_us in (-HOUR_US, HOUR_US):
        roster = roster_with(OPEN)
        roster.take("trip-1")
        roster.give_back("trip-1", None, again_s=START.s + 1.0)

        assert roster.next(Now(START.us + jump_us, START.s + 0.9)) is None
        assert roster.next(Now(START.us + jump_us, START.s + 1.0)) == "trip-1"


def test_what_is_in_doubt_waits_for_the_wall_clock_that_its_deadline_was_set_by() -> None:
    due_us = START.us + 10 * 1_000_000
    roster = roster_with(Known(started=True, parked=Parked.DOUBT, due_us=due_us))

    assert roster.left_s(START) == 10.0
    assert roster.next(Now(START.us - HOUR_US, START.s + 20.0)) is None
    assert roster.next(Now(due_us, START.s + 21.0)) == "trip-1"


def test_what_a_session_took_is_there_again_unless_its_events_stand() -> None:
    # given a run that waits, and what wakes it
    roster = roster_with(Known(started=True, parked=Parked.APPROVAL))
    body = inbox.Message(peer="ada", role=Role.USER, message=Body.of("go on"))
    envelope = InboxEnvelope(
        trajectory_id="trip-1", tenant="default", source="message:1", source_seq=0, lamport=0, recorded_at=0
    )
    encoded = encode_record(envelope, body, single_object)
    record = Record("inbox", 0, 12, 0, b"trip-1", encoded.value, encoded.headers)
    roster.arrived(0, "trip-1", Arrival(record, decode_inbox(record.key, record.value, record.headers)))
    kept = roster.get("trip-1")
    assert kept is not None
    for taken, work in ((None, Work.RUN), (Known(started=True, parked=Parked.APPROVAL), Work.RUN)):
        # when a session takes it, and is fenced, or ends and its events say that it was not taken
        roster.take("trip-1")
        kept.offer()
        kept.put_aside(12)
        assert kept.arrivals == []
        roster.give_back("trip-1", taken)
        # then the next one is given it
        kept.offered = -1
        assert [one.record.offset for one in kept.arrivals] == [12]
        assert roster.work_of("trip-1") is work
    # and when they say that it was taken, nobody is
    kept.put_aside(12)
    roster.give_back("trip-1", Known(started=True, parked=Parked.APPROVAL, taken={"message:1": 0}))
    assert (kept.arrivals, kept.aside, roster.work_of("trip-1")) == ([], [], None)


def test_of_many_that_wait_those_are_found_whose_time_has_come_in_its_order() -> None:
    # given trajectories that wait by either clock, some of which are begun with, or were sorted anew, meanwhile
    later = Later()
    for number in range(5_000):
        later.add(f"doubt-{number:04}", 0.0, START.us + number * 1_000_000)
        later.add(f"again-{number:04}", START.s + number, 0)
        later.add(f"again-{number:04}", START.s + number + 0.5, 0)
    for number in range(0, 5_000, 2):
        later.remove(f"doubt-{number:04}")
    # when time passes
    assert later.left_s(START) == 0.5
    found = later.come(Now(START.us + 9_000_000, START.s + 2.5))
    # then each is found once, and the next look is when one may be found
    assert sorted(found) == sorted([*(f"doubt-{n:04}" for n in (1, 3, 5, 7, 9)), *(f"again-{n:04}" for n in range(3))])
    assert later.come(Now(START.us + 9_000_000, START.s + 2.5)) == []
    assert later.left_s(Now(START.us + 9_000_000, START.s + 2.5)) == 1.0
    # and whoever waits again and again leaves nothing behind
    for number in range(10_000):
        later.add("again-4999", START.s + 1e6 + number, 0)
    assert len(later._by_s) + len(later._by_us) <= 2 * 7_500 + NOBODYS_MAX + 1
