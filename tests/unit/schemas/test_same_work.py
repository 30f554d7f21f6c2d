"""A disturbed run did the same work as an undisturbed one, or the first difference says where not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from scripts.golden import sample
from tests.support.chains import Chain, run_of
from tracklog.schemas import events as ev
from tracklog.schemas.codec import Event, decode_event
from tracklog.schemas.errors import UnknownSchema
from tracklog.schemas.same_work import Difference, same_work, work_of
from tracklog.schemas.values import (
    Body,
    Choice,
    ContextEdit,
    EditOp,
    ObservedKind,
    ResultStatus,
    Role,
    Settled,
    Value,
)

CALL = sample(ev.ToolIntent, full=True)
RESULT = ev.ToolResult(call_id="c", status=ResultStatus.OK, output=Body.of("7"), settled=Settled.DIRECT)


def events_of(chain: Chain) -> list[Event]:
    return [decode_event(made.key, made.value, made.headers) for made in chain.records]


def history(*bodies: Any, trajectory_id: str = "t", claims_at: Sequence[int] = (0,)) -> list[Event]:
    """A run of these bodies, claimed anew before each of the given ones. A function makes a body from the chain."""
    chain = Chain(trajectory_id)
    for number, body in enumerate(bodies):
        if number in claims_at:
            chain.claim(f"owner-{number}")
        chain.add(body(chain) if callable(body) else body, turn=1)
    return events_of(chain)


def changed(body: Value, **fields: Any) -> Value:
    return type(body)(**{**dict(body), **fields})


def refers_to(seq_back: int) -> Callable[[Chain], ev.ContextBuilt]:
    def build(chain: Chain) -> ev.ContextBuilt:
        edit = ContextEdit(op=EditOp.ADD, seqs=(chain.seq - seq_back,))
        return ev.ContextBuilt(edits=(edit,), context_hash=bytes(32), messages=1, rule_version="1")

    return build


def resolves_last(chain: Chain) -> ev.ApprovalResolved:
    return ev.ApprovalResolved(
        call_id="c", request_hash=chain.records[-1].hash, approver="someone", choice=Choice.APPROVE
    )


def checkpoint(chain: Chain) -> ev.CheckpointTaken:
    state = sample(ev.CheckpointTaken, full=True).state.model_copy(update={"hash": chain.hash})
    return ev.CheckpointTaken(seq_covered=chain.seq - 1, epoch_covered=chain.epoch, head_hash=chain.hash, state=state)


REQUEST = sample(ev.ApprovalRequested, full=True)
MESSAGE = ev.MessageReceived(peer="user", role=Role.USER, message=Body.of("please"))


def test_a_run_did_the_same_work_as_itself_under_another_name() -> None:
    assert same_work(events_of(run_of("one")), events_of(run_of("another"))) is None


def test_work_of_equal_runs_is_equal() -> None:
    assert work_of(events_of(run_of("one"))) == work_of(events_of(run_of("another")))


@pytest.mark.parametrize(
    "bodies",
    [(MESSAGE, refers_to(1)), (REQUEST, resolves_last)],
    ids=["seqs of the context", "a quoted hash"],
)
def test_a_takeover_before_the_work_shifts_references_and_is_no_difference(bodies: Sequence[Any]) -> None:
    calm, chain = history(*bodies), Chain("u")
    chain.claim("first")
    chain.claim("second")
    for body in bodies:
        chain.add(body(chain) if callable(body) else body, turn=1)

    assert same_work(calm, events_of(chain)) is None


def test_claims_and_releases_in_between_are_not_work() -> None:
    calm = history(MESSAGE, RESULT, lambda chain: _context_of(chain, 0))
    disturbed = history(MESSAGE, RESULT, lambda chain: _context_of(chain, 0), claims_at=(0, 1, 2))

    assert len(disturbed) == len(calm) + 2
    assert same_work(calm, disturbed) is None


def test_checkpoints_are_not_work() -> None:
    """Given checkpoints at other moments, which measured time decides, then it is the same work."""
    calm = history(MESSAGE, RESULT)
    assert same_work(calm, history(MESSAGE, checkpoint, RESULT, checkpoint)) is None


def _context_of(chain: Chain, ordinal: int) -> ev.ContextBuilt:
    """Adds the event that is the n-th but ownership, whatever its seq."""
    work = [event.envelope.seq for event in events_of(chain) if not isinstance(event.body, ev.OwnershipClaimed)]
    edit = ContextEdit(op=EditOp.ADD, seqs=(work[ordinal],))
    return ev.ContextBuilt(edits=(edit,), context_hash=bytes(32), messages=1, rule_version="1")


def test_a_reference_to_another_event_is_a_difference() -> None:
    left = history(MESSAGE, RESULT, lambda chain: _context_of(chain, 0))
    right = history(MESSAGE, RESULT, lambda chain: _context_of(chain, 1), claims_at=(0, 1))

    found = same_work(left, right)

    assert found == Difference(2, "ContextBuilt", "edits[0].seqs[0]", "event 0", "event 1", 3, 4)
    assert str(found) == (
        "event 2 (seq 3 and 4): ContextBuilt.edits[0].seqs[0] is 'event 0' on the left and 'event 1' on the right"
    )


SAME: list[tuple[Value, dict[str, Any]]] = [
    (RESULT, {"settled": Settled.REISSUED, "attempts": 3}),
    (RESULT, {"duration_ms": 12}),
    (CALL, {"not_after": 1, "idempotency_key": "another"}),
    (REQUEST, {"expires_at": 1}),
    (sample(ev.InboxRefused, full=True), {"refused": {"source": "elsewhere", "seq": 1}}),
    (ev.TimerSet(timer_id="t", due_at=1), {"due_at": 2}),
    *(
        (ev.Observed(kind=kind, name="n", occurrence=0, value=Body.of("1")), {"value": Body.of("2")})
        for kind in (ObservedKind.CLOCK, ObservedKind.RANDOM, ObservedKind.ID)
    ),
]
DIFFERENT: list[tuple[Value, dict[str, Any], str]] = [
    (RESULT, {"output": Body.of("8")}, "output.text"),
    (RESULT, {"status": ResultStatus.ERROR}, "status"),
    (CALL, {"arguments": Body.of("{1}")}, "arguments.text"),
    (CALL, {"key_ttl_ms": 5}, "key_ttl_ms"),
    (CALL, {"request_hash": bytes(32)}, "request_hash"),
    (CALL, {"request_hash": None}, "request_hash"),
    (REQUEST, {"expires_at": None}, "expires_at"),
    (REQUEST, {"argument_hash": bytes(32)}, "argument_hash"),
    (sample(ev.TaskStarted, full=True), {"labels": {"key": "other"}}, "labels.key"),
    (sample(ev.TaskStarted, full=True), {"labels": {}}, "labels.key"),
    (ev.TimerSet(timer_id="t", due_at=1), {"due_at": None, "due_turn": 1}, "due_turn"),
    (ev.Observed(kind=ObservedKind.STEP, name="n", occurrence=0, value=Body.of("1")), {"occurrence": 1}, "occurrence"),
    (
        ev.Observed(kind=ObservedKind.STEP, name="n", occurrence=0, value=Body.of("1")),
        {"value": Body.of("2")},
        "value.text",
    ),
    (MESSAGE, {"about": {"trajectory_id": "elsewhere", "seq": 1}}, "about"),
]


@pytest.mark.parametrize(("body", "fields"), SAME, ids=[f"{type(b).__name__}.{min(f)}" for b, f in SAME])
def test_what_a_disturbance_changes_is_no_difference(body: Value, fields: dict[str, Any]) -> None:
    assert same_work(history(body), history(changed(body, **fields))) is None


@pytest.mark.parametrize(("body", "fields", "at"), DIFFERENT, ids=[f"{type(b).__name__}.{a}" for b, _, a in DIFFERENT])
def test_anything_else_is_a_difference_and_named(body: Value, fields: dict[str, Any], at: str) -> None:
    found = same_work(history(body), history(changed(body, **fields)))

    assert found is not None
    assert (found.ordinal, found.type, found.field) == (0, type(body).__name__, at)
    assert found.left != found.right


def test_an_event_too_few_or_another_type_is_a_difference() -> None:
    whole, short, other = history(MESSAGE, RESULT), history(MESSAGE), history(MESSAGE, MESSAGE)

    assert str(same_work(whole, short)) == (
        "event 1 (seq 2 and none): the type of the event is 'ToolResult' on the left and '(nothing)' on the right"
    )
    assert same_work(short, whole) == Difference(1, "(nothing)", "", "(nothing)", "ToolResult", None, 2)
    assert same_work(whole, other) == Difference(1, "ToolResult", "", "ToolResult", "MessageReceived", 2, 2)


def test_the_turn_is_part_of_the_work() -> None:
    left, right = Chain("t"), Chain("t")
    left.add(MESSAGE, turn=1)
    right.add(MESSAGE, turn=2)

    assert same_work(events_of(left), events_of(right)) == Difference(0, "MessageReceived", "turn", 1, 2, 0, 0)


def test_two_empty_histories_did_the_same_nothing() -> None:
    assert same_work([], []) is None
    assert same_work([], history(MESSAGE)) is not None


def test_nothing_is_said_about_an_event_that_is_not_known() -> None:
    (claim, known) = history(MESSAGE)
    unknown = known._replace(name="Dreamed", body=None)

    with pytest.raises(UnknownSchema, match="event 1 of 't' is a Dreamed of a version not known here"):
        same_work([claim, unknown], [claim, unknown])
