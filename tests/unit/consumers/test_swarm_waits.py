"""Who waits for whom, and who can never go on: told from states alone."""

from __future__ import annotations

from typing import Any

import pytest

from tracklog.consumers.swarm.waits import ANYBODY, Swarm, swarm_of
from tracklog.schemas.lifecycle import Parked, TrajectoryStatus
from tracklog.schemas.state import Child, State, Task, Timer
from tracklog.schemas.values import Driver, Ref


def task(parent: str | None) -> Task:
    ref = None if parent is None else Ref(trajectory_id=parent, seq=2)
    return Task(Driver.WORKER, "a", "", "", None, None, {}, None, "s", ref, None, None, None, "")


def run(name: str, parked: str = "", *, on: str = "", parent: str | None = None, **fields: Any) -> State:
    fields = {"status": TrajectoryStatus.RUNNING, **fields}
    return State(name, task=task(parent), parked=parked, waits_for=on, **fields)


def ended(name: str, parent: str | None = None, **fields: Any) -> State:
    return run(name, "left", parent=parent, status=TrajectoryStatus.COMPLETED, **fields)


def swarm(*states: State, mail: tuple[str, ...] = ()) -> Swarm:
    return swarm_of("s", {one.trajectory_id: one for one in states}, mail)


MESSAGE, CHILD = Parked.MESSAGE.value, Parked.CHILD.value


def test_those_who_wait_for_each_other_are_named_in_a_circle() -> None:
    found = swarm(run("a", MESSAGE, on="b"), run("b", MESSAGE, on="c"), run("c", MESSAGE, on="a"), run("d"))
    assert (found.deadlocks, found.orphans, found.held_up) == ((("a", "b", "c"),), (), ())


def test_a_parent_and_a_child_that_wait_for_each_other_are_a_deadlock() -> None:
    parent = run("p", CHILD, on="p.child-1", children={"p.child-1": Child(2, bytes(32), 0)})
    found = swarm(parent, run("p.child-1", MESSAGE, on="p", parent="p"))
    assert found.deadlocks == (("p", "p.child-1"),)


def test_all_who_wait_for_anybody_wait_for_each_other() -> None:
    assert swarm(*(run(f"r{n:04d}", MESSAGE) for n in range(2000))).deadlocks[0][-1] == "r1999"
    assert swarm(run("a", MESSAGE), run("b", MESSAGE, on="a")).deadlocks == (("a", "b"),)


def test_who_waits_for_itself_is_a_deadlock() -> None:
    assert swarm(run("a", MESSAGE, on="a"), run("b")).deadlocks == (("a",),)


def test_who_waits_for_one_that_has_ended_is_an_orphan_and_holds_up_others() -> None:
    found = swarm(run("a", MESSAGE, on="b"), ended("b"), run("c", MESSAGE, on="a"))
    assert (found.deadlocks, found.orphans, found.held_up) == ((), ("a",), ("c",))
    assert swarm(run("a", MESSAGE), ended("b")).orphans == ("a",)


@pytest.mark.parametrize(
    "other",
    [
        run("b"),
        run("b", Parked.TIMER, timers={"nap": Timer(due_at=5)}),
        run("b", Parked.APPROVAL),
        run("b", Parked.OUTCOME),
        run("b", Parked.FAILED),
        run("b", MESSAGE, on="a person"),
    ],
    ids=["runs", "timer", "approval", "outcome", "stopped", "outsider"],
)
def test_one_that_can_go_on_keeps_the_others_from_being_stuck(other: State) -> None:
    found = swarm(run("a", MESSAGE, on="b"), other, run("c", MESSAGE))
    assert (found.sound, found.held_up) == (True, ())


def test_what_is_on_the_way_is_no_deadlock() -> None:
    a, b = run("a", MESSAGE, on="b"), run("b", MESSAGE, on="a", sent={"a": 7})
    assert swarm(a, b).sound
    assert swarm(a._replace(inbox={"msg/b": 7}), b).deadlocks == (("a", "b"),)
    assert swarm(a._replace(inbox={"msg/b": 7}), b, mail=("b",)).sound


def test_the_end_of_a_child_is_on_the_way_until_it_was_taken() -> None:
    parent = run("p", CHILD, on="c", children={"c": Child(2, bytes(32), 0)})
    assert swarm(parent, ended("c", parent="p")).sound
    assert swarm(parent).sound
    assert swarm(parent, ended("c")).orphans == ("p",)


def test_one_alone_waits_for_people() -> None:
    found = swarm(run("a", MESSAGE))
    assert (found.sound, found.waits["a"][0].whom) == (True, ANYBODY)


def test_a_timer_says_when_it_ends() -> None:
    found = swarm(run("a", Parked.TIMER, timers={"nap": Timer(due_at=5), "turns": Timer(due_turn=2)}))
    assert [(wait.what, wait.due_us) for wait in found.waits["a"]] == [("nap", 5)]
