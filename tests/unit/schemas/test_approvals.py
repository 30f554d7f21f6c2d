"""Who may decide, and who is asked next: the pure rules."""

from __future__ import annotations

import pytest

from tracklog.schemas.approvals import Approver, Request, Step, escalated, may_not, request_of, terms_ext, who_may
from tracklog.schemas.values import OnExpiry


def person(name: str, *roles: str, tenants: tuple[str, ...] = ()) -> Approver:
    return Approver(name, frozenset(roles), frozenset(tenants))


@pytest.mark.parametrize(
    ("may_approve", "who", "words"),
    [
        ((), person("eve"), ""),
        (("ada",), person("ada"), ""),
        (("ada",), person("Ada"), "Ada may not decide: that is for ada"),
        (("ada", "role:manager"), person("bob", "manager"), ""),
        (("role:manager",), person("role:manager"), "may not decide: that is for the role manager"),
        (("role:manager",), person("manager"), "may not decide"),
        (("role:manager tenant:acme",), person("bob", "manager"), "that is for the role manager of tenant acme"),
        (("role:manager tenant:acme",), person("bob", "manager", tenants=("acme", "other")), ""),
        (("role:manager tenant:acme",), person("bob", "clerk", tenants=("acme",)), "may not decide"),
        (("tenant:acme",), person("bob", tenants=("*",)), ""),
        ((), person("bob", tenants=("other",)), "bob is not of tenant acme"),
        (("bob",), person("bob", "manager", tenants=("other",)), "bob is not of tenant acme"),
        (("role:manager",), person("req", "manager"), "req asked for this work"),
        ((), person("req"), "req asked for this work"),
    ],
)
def test_who_may_decide(may_approve: tuple[str, ...], who: Approver, words: str) -> None:
    found = may_not(may_approve, False, who, tenant="acme", requester="req")

    assert found == "" if not words else words in found


def test_the_requester_may_where_the_request_says_so() -> None:
    assert may_not((), True, person("req"), tenant="acme", requester="req") == ""
    assert may_not((), False, person("req"), tenant="acme", requester=None) == ""


def test_an_identity_comes_back_from_what_a_record_says_and_damage_gives_no_right() -> None:
    who = person("ada", "manager", "approver", tenants=("acme",))

    assert Approver.said("ada", who.ext) == who
    assert Approver.said("ada", {"roles": '{"manager":1}', "tenants": "acme["}) == person("ada")


def test_each_step_takes_the_place_of_the_one_before_until_there_is_none() -> None:
    # given a request with two steps behind it
    first = Request(
        b"1" * 32, b"a" * 32, 7, 2, ("ada",), False, 10, "dear", "book", (Step(("bob",), 5.0), Step(("eve",)))
    )

    # when nobody answers, twice
    body, ext = escalated("c1", first, 1_000_000)
    second = request_of(body, b"2" * 32, 9, ext)
    body, ext = escalated("c1", second, 9_000_000)
    third = request_of(body, b"3" * 32, 11, ext)

    # then each asks the next ones, for their own time, about the same arguments, in the same lane
    assert second[1:] == (first.argument_hash, 9, 2, ("bob",), False, 6_000_000, "dear", "book", first.then[1:], 1)
    assert third[1:] == (first.argument_hash, 11, 2, ("eve",), False, None, "dear", "book", (), 2)
    assert body.on_expiry is OnExpiry.DENY


@pytest.mark.parametrize("damage", ["", "[", "[[1]]", '[["a"]]', '[[["a"],-1]]', '[[["a"],1e300]]', '{"a":1}'])
def test_steps_that_cannot_be_read_are_nobody(damage: str) -> None:
    body, ext = escalated("c1", Request(b"1" * 32, b"a" * 32, 7, then=(Step(("bob",), 5.0), Step(("eve",)))), 0)

    assert request_of(body, b"2" * 32, 9, {**ext, "then": damage, "step": "9" * 5000}).then == ()


def test_who_may_in_words() -> None:
    assert who_may(()) == "anybody"
    assert who_may(("ada", "role:manager tenant:acme")) == "ada or the role manager of tenant acme"
    assert terms_ext("book", True, ()) == {"tool": "book", "requester_may": "true"}
