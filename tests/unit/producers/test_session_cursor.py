"""The cursor over events that are written by hand: what is given, what is live, what is a divergence."""

from __future__ import annotations

from typing import Any

import pytest

from tracklog.producers.cursor import Cursor
from tracklog.producers.divergence import Diverged
from tracklog.schemas import events as ev
from tracklog.schemas.codec import Event
from tracklog.schemas.envelope import Envelope
from tracklog.schemas.values import (
    ZERO_HASH,
    Body,
    Ending,
    ObservedKind,
    Ref,
    ResultStatus,
    Ruling,
    Settled,
)

STEP = ObservedKind.STEP


def event(seq: int, body: ev.EventBody | None, cause: int | None = None, turn: int = 1) -> Event:
    causes = () if cause is None else (Ref(trajectory_id="t-1", seq=cause),)
    envelope = Envelope(
        trajectory_id="t-1",
        tenant="default",
        seq=seq,
        epoch=1,
        turn=turn,
        event_id=bytes(16),
        causes=causes,
        lamport=seq,
        recorded_at=0,
        prev_hash=ZERO_HASH,
    )
    return Event(type(body).__name__, envelope, body, bytes([seq]) * 32, bytes(8))


def step(name: str, occurrence: int = 0) -> ev.Observed:
    return ev.Observed(kind=STEP, name=name, occurrence=occurrence, value=Body.of(name))


def context(messages: int = 1) -> ev.ContextBuilt:
    return ev.ContextBuilt(edits=(), context_hash=ZERO_HASH, messages=messages, rule_version="1")


def result(call_id: str) -> ev.ToolResult:
    return ev.ToolResult(
        call_id=call_id, status=ResultStatus.OK, output=Body.of("out"), settled=Settled.DIRECT, attempts=1
    )


def allowed(call_id: str) -> ev.Authorized:
    return ev.Authorized(call_id=call_id, ruling=Ruling.ALLOW, policy_version="1")


def asked(cursor: Cursor, name: str, after: int | None = 0, occurrence: int = 0) -> Any:
    return cursor.observed(STEP, name, occurrence, f"step {name!r}", after)


def test_steps_are_known_by_name_and_occurrence_in_any_order() -> None:
    cursor = Cursor([event(1, step("a"), 0), event(2, step("b"), 0), event(3, step("a", 1), 0)])
    assert [asked(cursor, "b").seq, asked(cursor, "a", occurrence=1).seq, asked(cursor, "a").seq] == [2, 3, 1]
    assert cursor.done
    assert asked(cursor, "a", occurrence=2) is None


def test_a_step_that_followed_another_is_not_given_before_it() -> None:
    cursor = Cursor([event(1, step("a"), 0), event(2, step("b"), 1)])
    with pytest.raises(Diverged, match=r"recorded is step 'a'.*asked for is step 'b'"):
        asked(cursor, "b")


def test_nothing_recorded_is_given_after_something_live() -> None:
    cursor = Cursor([event(1, step("a"), 0)])
    with pytest.raises(Diverged, match="after something that is not recorded"):
        asked(cursor, "a", after=2)


def test_a_step_that_is_not_recorded_is_live_only_in_the_last_turn() -> None:
    """Given one recorded beside it, it may have been under way at the crash; before a recorded context, it was not."""
    beside = Cursor([event(1, step("a"), 0)])
    assert asked(beside, "b") is None
    before = Cursor([event(1, step("a"), 0), event(2, context(), 0)])
    with pytest.raises(Diverged):
        asked(before, "b")


def test_what_is_in_order_is_not_given_before_what_ran_beside_is_over() -> None:
    cursor = Cursor([event(1, step("a"), 0), event(2, context(), 0)])
    with pytest.raises(Diverged, match="recorded is step 'a'"):
        cursor.ordered(ev.ContextBuilt, "a context", 0)


def test_a_step_of_a_later_turn_is_not_given_early() -> None:
    cursor = Cursor([event(1, context(), 0), event(2, step("a"), 1)])
    with pytest.raises(Diverged, match="recorded is a context"):
        asked(cursor, "a")


def test_calls_are_known_by_their_id() -> None:
    cursor = Cursor([event(1, allowed("c1"), 0), event(2, allowed("c2"), 0), event(3, result("c2"), 2)])
    second = cursor.of_call(ev.Authorized, "c2", "c2", 0)
    assert second is not None
    outcome = cursor.of_call(ev.ToolResult, "c2", "c2", 2)
    first = cursor.of_call(ev.Authorized, "c1", "c1", 0)
    assert outcome is not None
    assert first is not None
    assert (second.seq, outcome.seq, first.seq, cursor.done) == (2, 3, 1, True)
    assert cursor.of_call(ev.ToolResult, "c1", "c1", 1) is None


def test_another_kind_than_the_recorded_one_is_a_divergence_that_stays() -> None:
    cursor = Cursor([event(1, context(), 0), event(2, ev.TaskEnded(ending=Ending.COMPLETED), 1)])
    with pytest.raises(Diverged) as first:
        cursor.ordered(ev.ModelReplied, "a model call", 0)
    with pytest.raises(Diverged) as again:
        cursor.ordered(ev.ContextBuilt, "a context", 0)
    assert again.value is first.value
    assert first.value.divergence.turn == 1


def test_ownership_and_judgements_are_no_part_of_the_program() -> None:
    claim = ev.OwnershipClaimed(owner="me", nonce=bytes(16), driver="library")  # type: ignore[arg-type]
    cursor = Cursor([event(0, claim), event(1, ev.OwnershipReleased(owner="me", nonce=bytes(16)))])
    assert cursor.done
    assert cursor.end == 1
    assert cursor.ordered(ev.ContextBuilt, "a context", None) is None


def test_what_was_never_asked_for_is_told_at_the_end() -> None:
    cursor = Cursor([event(1, context(), 0)])
    with pytest.raises(Diverged, match="asked for is the end of the program"):
        cursor.check_all_given("the end of the program")
