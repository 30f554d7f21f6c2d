"""Every reason for which a trajectory does not go on has a way out, and it is said."""

from __future__ import annotations

import pytest

from tracklog.consumers.ways_out import stopped_words, ways_out
from tracklog.schemas.approvals import Request
from tracklog.schemas.lifecycle import STOPPED, CallStatus, Parked, TrajectoryStatus
from tracklog.schemas.state import Call, State, Task
from tracklog.schemas.values import Driver


def state(driver: Driver = Driver.WORKER, **changes: object) -> State:
    task = Task(driver, "a", "", "", None, None, {}, None, None, None, None, None, None, "")
    return State("trip-1", status=TrajectoryStatus.RUNNING, task=task)._replace(**changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("word", sorted(STOPPED))
def test_a_stopped_word_has_a_way_out_by_who_drives_the_run(word: str) -> None:
    of_worker, of_library = ("\n".join(ways_out(state(driver, parked=word, reason="why"))) for driver in _DRIVERS)

    assert of_worker.startswith(f"stopped: {word}: why\nway out: ")
    assert "tracklog retry trip-1" in of_worker.replace("`", "")
    assert "tracklog retry" not in of_library
    assert "open its session again" in of_library.lower()
    (line,) = stopped_words([{"parked": word}, {"parked": word}, {"parked": ""}])
    assert line.startswith(f"{word}: ")
    assert "ID" in line


_DRIVERS = (Driver.WORKER, Driver.LIBRARY)


def test_what_waits_for_a_person_names_the_command() -> None:
    asked = Call("refund", CallStatus.ASKED, 1, request=Request(b"", b"", 0, may_approve=("ada",)))
    doubt = Call("book", CallStatus.ESCALATED, 1)

    lines = list(ways_out(state(calls={"c1": asked, "c2": doubt}, parked=Parked.MESSAGE)))

    assert lines == [
        "waits for a decision by ada on refund: `tracklog approvals show trip-1 c1`",
        "only a person knows whether book happened: `tracklog escalations settle trip-1 c2 ...`",
        "waits for a message: `tracklog send trip-1 TEXT`",
    ]


def test_what_goes_on_or_has_ended_needs_none() -> None:
    assert list(ways_out(state(parked=Parked.MOVED))) == []
    assert list(ways_out(state(status=TrajectoryStatus.FAILED, parked=Parked.FAILED))) == []
    assert list(stopped_words([{"parked": "left"}])) == []
