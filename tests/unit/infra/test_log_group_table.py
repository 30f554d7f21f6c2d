"""Turns of a group, over every order of joining, leaving, dying and coming back that Hypothesis thinks of."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tracklog.infra.log.group_table import (
    GroupTable,
    Owner,
    commit,
    hand_back,
    leave,
    range_assignment,
    take_turn,
)

SESSION_S = 10.0


def turn(table: GroupTable, member: str, held: dict[int, Owner], now_s: float, partitions: int = 4):  # type: ignore[no-untyped-def]
    """One turn as a member takes it: what is lost is dropped, what is revoked handed back."""
    result = take_turn(table, member, held, now_s=now_s, session_s=SESSION_S, partitions=partitions)
    for partition in (*result.lost, *result.revoked):
        owner = held.pop(partition)
        hand_back(table, {partition: owner})
    held.update(result.gained)
    return result


def test_range_assignment_gives_the_first_members_one_more() -> None:
    assert range_assignment(["b", "a", "c"], 7) == {"a": range(3), "b": range(3, 5), "c": range(5, 7)}
    assert range_assignment([], 7) == {}
    assert range_assignment(["a", "b"], 1) == {"a": range(1), "b": range(1, 1)}


def test_partition_moves_only_after_it_was_handed_back() -> None:
    table = GroupTable()
    a: dict[int, Owner] = {}
    b: dict[int, Owner] = {}
    assert set(turn(table, "a", a, 0.0).gained) == {0, 1, 2, 3}
    assert turn(table, "b", b, 1.0).gained == {}
    assert turn(table, "a", a, 2.0).revoked == (2, 3)
    assert set(turn(table, "b", b, 3.0).gained) == {2, 3}


def test_silent_member_loses_its_partitions_and_its_commits_do_not_count() -> None:
    table = GroupTable()
    a: dict[int, Owner] = {}
    b: dict[int, Owner] = {}
    turn(table, "a", a, 0.0)
    stale = dict(a)
    commit(table, {0: 5}, stale)
    assert set(turn(table, "b", b, SESSION_S + 1).gained) == {0, 1, 2, 3}

    commit(table, {0: 99}, stale)
    assert table.committed == {0: 5}
    assert turn(table, "a", a, SESSION_S + 2).lost == (0, 1, 2, 3)

    turn(table, "b", b, SESSION_S + 3)
    assert set(turn(table, "a", a, SESSION_S + 4).gained) == {0, 1}
    commit(table, {0: 98}, stale)
    assert table.committed == {0: 5}, "the same member, but not the same ownership"


def test_heartbeat_from_before_a_reboot_counts_as_dead() -> None:
    table = GroupTable(heartbeats={"old": 1_000_000.0}, owners={0: Owner("old", 1)})
    assert set(turn(table, "new", {}, 5.0, partitions=1).gained) == {0}


STEPS = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["turn", "leave", "die"])), max_size=40)


@given(STEPS)
def test_partition_never_has_two_owners_and_the_group_settles(steps: list[tuple[str, str]]) -> None:
    table = GroupTable()
    held: dict[str, dict[int, Owner]] = {}
    now_s = 0.0
    for member, step in steps:
        now_s += 1.0
        for other in held:
            table.heartbeats[other] = now_s
        if step == "turn":
            turn(table, member, held.setdefault(member, {}), now_s)
        elif member in held:
            del held[member]
            if step == "leave":
                leave(table, member)
        claims = [partition for owned in held.values() for partition in owned]
        assert len(claims) == len(set(claims))

    now_s += SESSION_S + 1
    for other in held:
        table.heartbeats[other] = now_s
    for _ in range(2):
        for member, owned in held.items():
            turn(table, member, owned, now_s)
    if held:
        assert sorted(p for owned in held.values() for p in owned) == [0, 1, 2, 3]
        assert {member: set(owned) for member, owned in held.items()} == {
            member: set(share) for member, share in range_assignment(held, 4).items()
        }
