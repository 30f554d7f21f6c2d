"""Three calls held side by side, answered in each of the six orders, and everything that people do wrong meanwhile.

Each goes through the inbox, a session and a router; what must hold of any of it stands in `tests/support/approving.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations
from typing import Final

import pytest

from tests.support.approving import EDIT, PEOPLE, UNFIT, WITHIN_S, Approving, Person
from tracklog.infra.redis_client import RedisClient, connect
from tracklog.producers.approvals import EXPIRY
from tracklog.schemas import events as ev
from tracklog.schemas import inbox
from tracklog.schemas.approvals import Approver
from tracklog.schemas.values import Choice, Ending, ResultStatus

ORDERS: Final = [pytest.param(order, id="".join(order)) for order in permutations("abc")]
BY_NAME: Final[dict[str, Person]] = {one.who.name: one for one in PEOPLE}
ADA, MO, EVE, DI = (BY_NAME[name] for name in ("ada", "mo", "eve", "di"))
CHOICES: Final = {"a0": Choice.APPROVE, "b0": Choice.DENY, "c0": Choice.ANSWER}
STATUS: Final = {"a0": ResultStatus.OK, "b0": ResultStatus.DENIED, "c0": ResultStatus.OK}


@pytest.fixture
def held(redis_db: str) -> Iterator[Approving]:
    client: RedisClient = connect(redis_db, timeout_s=5.0)
    held = Approving(client)
    held.open()
    held.route()
    yield held
    client.close()


def call(name: str) -> str:
    return f"{name}0"


def decision(held: Approving, name: str, who: Approver, choice: Choice) -> inbox.Decision:
    request = held.request(call(name))
    assert request is not None
    return inbox.Decision(call_id=call(name), request_hash=request, approver=who.name, choice=choice)


def outcomes(held: Approving) -> dict[str, ResultStatus]:
    return {body.call_id: body.status for body in held.world.bodies(ev.ToolResult)}


def resolved(held: Approving) -> dict[str, tuple[str, Choice]]:
    return {body.call_id: (body.approver, body.choice) for body in held.world.bodies(ev.ApprovalResolved)}


def refusals(held: Approving) -> list[str]:
    return [body.reason for body in held.world.bodies(ev.InboxRefused)]


@pytest.mark.parametrize("order", ORDERS)
def test_each_is_answered_for_itself_while_the_others_wait(order: tuple[str, ...], held: Approving) -> None:
    for name in order:
        assert held.decide(call(name), MO, CHOICES[call(name)])
        held.open()
    held.finish()

    assert outcomes(held) == STATUS
    assert resolved(held) == {name: ("mo", choice) for name, choice in CHOICES.items()}
    assert refusals(held) == []


@pytest.mark.parametrize("order", ORDERS)
def test_said_twice_and_delivered_twice_each_counts_once(order: tuple[str, ...], held: Approving) -> None:
    for name in order:
        assert held.decide(call(name), ADA, CHOICES[call(name)])
        assert held.decide(call(name), ADA, CHOICES[call(name)])  # the same record
    for number in range(3):
        held.redeliver(number)
    held.finish()

    assert (outcomes(held), refusals(held)) == (STATUS, [])
    assert len(held.world.bodies(ev.ApprovalResolved)) == 3


@pytest.mark.parametrize("order", ORDERS)
def test_of_two_that_disagree_the_first_counts_and_the_other_is_told(order: tuple[str, ...], held: Approving) -> None:
    for name in order:
        assert held.decide(call(name), ADA, Choice.DENY)
        assert held.decide(call(name), MO, Choice.APPROVE)
    held.finish()

    assert set(outcomes(held).values()) == {ResultStatus.DENIED}
    assert set(resolved(held).values()) == {("ada", Choice.DENY)}
    assert len(refusals(held)) == 3
    assert all("does not wait for a decision" in reason for reason in refusals(held))


@pytest.mark.parametrize("order", ORDERS)
def test_each_is_edited_and_made_with_that(order: tuple[str, ...], held: Approving) -> None:
    for name in order:
        assert held.decide(call(name), MO, Choice.EDIT, UNFIT)
        assert held.decide(call(name), MO, Choice.EDIT, EDIT)
    held.finish()

    assert [body.arguments.text for body in held.world.bodies(ev.ToolIntent)] == [EDIT] * 3
    assert all("the edited arguments are not taken" in reason for reason in refusals(held))
    assert len(refusals(held)) == 3


@pytest.mark.parametrize("order", ORDERS)
def test_what_expires_goes_to_the_next_ones_and_those_before_are_late(order: tuple[str, ...], held: Approving) -> None:
    first = {name: decision(held, name, ADA.who, Choice.APPROVE) for name in order}
    held.tick(WITHIN_S)
    held.route()
    for name in order:
        assert not held.decide(call(name), ADA, Choice.APPROVE)  # told at once that it has expired
        held.post(first[name], ADA.who)  # behind the expiry
    held.open()
    for name in order:
        assert not held.decide(call(name), ADA, Choice.APPROVE)  # told at once who may now
        assert held.decide(call(name), EVE, CHOICES[call(name)])
    held.finish()

    assert (outcomes(held), set(resolved(held).values())) == (STATUS, {("eve", one) for one in CHOICES.values()})
    assert all("another request" in reason for reason in refusals(held))
    assert len(refusals(held)) == 3


@pytest.mark.parametrize("order", ORDERS)
def test_answered_just_before_it_expires_the_answer_counts_however_late_it_is_taken(
    order: tuple[str, ...], held: Approving
) -> None:
    for name in order:
        assert held.decide(call(name), MO, CHOICES[call(name)])
    held.tick(WITHIN_S)
    held.route()
    held.finish()

    assert (outcomes(held), len(held.world.bodies(ev.ApprovalRequested))) == (STATUS, 3)
    assert len(refusals(held)) == 3  # what the router said came behind


@pytest.mark.parametrize("order", ORDERS)
def test_after_a_cancel_nothing_is_made_and_each_is_told(order: tuple[str, ...], held: Approving) -> None:
    held.post(inbox.Cancel(by="ada"), ADA.who)
    for name in order:
        held.post(decision(held, name, MO.who, Choice.APPROVE), MO.who)
    held.finish()

    assert (outcomes(held), resolved(held)) == ({}, {})
    assert all("is cancelled" in reason for reason in refusals(held))
    assert len(refusals(held)) == 3
    assert [body.ending for body in held.world.bodies(ev.TaskEnded)] == [Ending.CANCELLED]


@pytest.mark.parametrize("order", ORDERS)
def test_an_approval_of_one_is_none_of_another_nor_of_other_arguments(order: tuple[str, ...], held: Approving) -> None:
    """Each quotes the request of the next one; or asks for arguments that were edited in the meantime."""
    requests = {name: decision(held, name, MO.who, Choice.APPROVE) for name in order}
    for name, other in zip(order, (*order[1:], order[0]), strict=True):
        held.post(requests[other].model_copy(update={"call_id": call(name)}), MO.who)
    held.open()
    assert (resolved(held), len(refusals(held))) == ({}, 3)
    for name in order:
        assert held.decide(call(name), MO, Choice.EDIT)
        held.post(requests[name], ADA.who)
    held.finish()

    assert [body.arguments.text for body in held.world.bodies(ev.ToolIntent)] == [EDIT] * 3
    assert len(refusals(held)) == 6


@pytest.mark.parametrize("order", ORDERS)
def test_an_answer_before_the_request_decides_nothing(order: tuple[str, ...], redis_db: str) -> None:
    client = connect(redis_db, timeout_s=5.0)
    held = Approving(client)
    for name in order:
        early = inbox.Decision(call_id=call(name), request_hash=bytes(32), approver="mo", choice=Choice.APPROVE)
        held.post(early, MO.who)
    held.open()  # what came before its start is taken with it
    held.open()
    assert (resolved(held), outcomes(held)) == ({}, {})
    for name in order:
        assert held.decide(call(name), MO, Choice.DENY)
    held.finish()
    client.close()

    assert set(outcomes(held).values()) == {ResultStatus.DENIED}
    assert all("does not wait" in reason or "another request" in reason for reason in refusals(held))
    assert len(refusals(held)) == 3


def test_nobody_at_all_answers_and_each_is_refused_after_the_last_was_asked(held: Approving) -> None:
    held.finish()

    assert set(outcomes(held).values()) == {ResultStatus.DENIED}
    assert set(resolved(held).values()) == {(EXPIRY, Choice.EXPIRE)}
    assert len(held.world.bodies(ev.ApprovalRequested)) == 9
