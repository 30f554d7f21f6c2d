"""When a trajectory may be gone on with, by which of the two clocks."""

from __future__ import annotations

from tracklog.producers.roster import Known, Now, Roster, Standings
from tracklog.producers.spans import Span
from tracklog.schemas.lifecycle import Parked

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
