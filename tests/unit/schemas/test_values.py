"""An illegal value cannot be built: one row for each rule."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from scripts.golden import sample
from tracklog.schemas import limits
from tracklog.schemas.catalog import BODIES, ENVELOPES
from tracklog.schemas.envelope import Envelope
from tracklog.schemas.errors import InvalidTrajectoryId, SettingsError
from tracklog.schemas.events import (
    Annotated,
    ApprovalResolved,
    Compacted,
    ModelReplied,
    Observed,
    OwnershipClaimed,
    TaskStarted,
    TimerSet,
    ToolIntent,
    ToolResult,
)
from tracklog.schemas.inbox import Annotation
from tracklog.schemas.topics import Topics
from tracklog.schemas.values import Body, ContextEdit, InboxId, Ref, TargetKind, ToolCall, Value, check_trajectory_id

MODELS: list[type[Value]] = [*ENVELOPES.values(), *(body for bodies in BODIES.values() for body in bodies.values())]
CALL = ToolCall(call_id="1", tool="t", arguments="{}")
TOO_MANY_CALLS = [CALL.model_copy(update={"call_id": str(n)}) for n in range(limits.CALLS_PER_TURN_MAX + 1)]
ENVELOPE = sample(Envelope, full=True)


@pytest.mark.parametrize(
    "text",
    ["a", "airline-17-3", "é", "日本語", "with space", "💥", "\U0001fae8", "x" * 256, "é" * 128],
)
def test_a_printable_id_up_to_256_bytes_is_a_trajectory_id(text: str) -> None:
    assert check_trajectory_id(text) == text


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is empty"),
        ("x" * 257, "has 257 bytes"),
        ("é" * 128 + "x", "has 257 bytes"),
        ("a\nb", "do not print"),
        ("a\x00b", "do not print"),
        ("a\x7f", "do not print"),
        ("a\x85", "do not print"),
        ("a\u2028b", "do not print"),
        ("\u202egpj.exe", "do not print"),
        ("a\u200bb", "do not print"),
        ("\ud800", "do not print"),
        ("\udfff" * 85, "do not print"),
        ("\udfff" * 86, "has 258 bytes"),
    ],
)
def test_anything_else_is_none(text: str, why: str) -> None:
    with pytest.raises(InvalidTrajectoryId, match=why):
        check_trajectory_id(text)


ILLEGAL: list[tuple[type[Value], dict[str, Any], str]] = [
    (Envelope, {"seq": -1}, "seq"),
    (Envelope, {"seq": 2**63}, "seq"),
    (Envelope, {"trajectory_id": ""}, "is empty"),
    (Envelope, {"trajectory_id": "\ud800"}, "trajectory_id"),
    (Envelope, {"tenant": ""}, "tenant"),
    (Envelope, {"event_id": bytes(15)}, "event_id"),
    (Envelope, {"event_id": bytes(17)}, "event_id"),
    (Envelope, {"prev_hash": bytes(31)}, "prev_hash"),
    (Envelope, {"ext": {"key": 1}}, "ext"),
    (Ref, {"seq": -1}, "seq"),
    (InboxId, {"source": ""}, "source"),
    (OwnershipClaimed, {"nonce": bytes(8)}, "nonce"),
    (OwnershipClaimed, {"owner": "x" * (limits.TEXT_FIELD_CHARS_MAX + 1)}, "owner"),
    (OwnershipClaimed, {"driver": "robot"}, "driver"),
    (TaskStarted, {"labels": {str(n): "" for n in range(limits.LABELS_MAX + 1)}}, "labels"),
    (Body, {"text": "cut", "size_bytes": 100, "stored": False}, "must be in the blob store"),
    (ContextEdit, {"op": "add", "count": 0, "seqs": ()}, "add takes seqs"),
    (ContextEdit, {"op": "add", "count": 1, "seqs": (1,)}, "add takes seqs"),
    (ContextEdit, {"op": "keep", "count": 0, "seqs": ()}, "keep and drop take a count"),
    (ContextEdit, {"op": "drop", "count": 1, "seqs": (1,)}, "keep and drop take a count"),
    (ModelReplied, {"tool_calls": (CALL, CALL)}, "the same call_id"),
    (ModelReplied, {"sampling_seed": 2**63}, "sampling_seed"),
    (ModelReplied, {"sampling_seed": -(2**63) - 1}, "sampling_seed"),
    (
        ModelReplied,
        {
            "tool_calls": tuple(
                CALL.model_copy(update={"call_id": str(n)}) for n in range(limits.CALLS_PER_TURN_MAX + 1)
            )
        },
        "tool_calls",
    ),
    (ApprovalResolved, {"choice": "edit", "arguments": None, "answer": None}, "arguments are given"),
    (ApprovalResolved, {"choice": "approve", "arguments": Body.of(""), "answer": None}, "arguments are given"),
    (ApprovalResolved, {"choice": "answer", "arguments": None, "answer": None}, "an answer is given"),
    (ApprovalResolved, {"choice": "deny", "arguments": None, "answer": Body.of("")}, "an answer is given"),
    (ToolIntent, {"place": "dispatch", "effect": "opaque", "not_after": None}, "needs not_after"),
    (ToolIntent, {"place": "inline", "effect": "idempotent", "idempotency_key": ""}, "needs idempotency_key"),
    (ToolIntent, {"place": "inline", "effect": "idempotent", "key_ttl_ms": None}, "needs idempotency_key"),
    (ToolResult, {"duration_ms": -1}, "duration_ms"),
    (Compacted, {"first_turn": 2, "last_turn": 1}, "last_turn is before"),
    (TimerSet, {"due_turn": None, "due_at": None}, "exactly one"),
    (TimerSet, {"due_turn": 0, "due_at": 0}, "exactly one"),
    (Observed, {"occurrence": -1}, "occurrence"),
    (Annotated, {"target": "turn", "turn": None, "call_id": None}, "turn is given"),
    (Annotated, {"target": "trajectory", "turn": 0, "call_id": None}, "turn is given"),
    (Annotated, {"target": "call", "turn": None, "call_id": None}, "call_id is given"),
]


@pytest.mark.parametrize(
    ("model", "wrong", "why"), ILLEGAL, ids=[f"{m.__name__}-{n}" for n, (m, *_) in enumerate(ILLEGAL)]
)
def test_an_illegal_value_cannot_be_built(model: type[Value], wrong: dict[str, Any], why: str) -> None:
    legal = sample(model, full=True)

    with pytest.raises(ValidationError, match=why):
        model(**{**dict(legal), **wrong})


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_a_value_has_no_field_that_is_not_declared_and_is_frozen(model: type[Value]) -> None:
    legal = sample(model, full=True)

    with pytest.raises(ValidationError, match="extra_forbidden"):
        model(**{**dict(legal), "smuggled": 1})
    with pytest.raises(ValidationError, match="frozen_instance"):
        setattr(legal, next(iter(model.model_fields)), None)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_a_value_needs_each_of_its_required_fields(model: type[Value]) -> None:
    legal = dict(sample(model, full=True))
    for name, info in model.model_fields.items():
        if info.is_required():
            with pytest.raises(ValidationError, match=name):
                model(**{key: value for key, value in legal.items() if key != name})


def test_zero_is_a_value_and_not_unset() -> None:
    assert TimerSet(timer_id="t", due_turn=0).due_turn == 0
    assert Envelope(**{**dict(ENVELOPE), "seq": 0, "epoch": 0, "inbox_position": 0}).inbox_position == 0


def test_a_body_that_is_cut_says_so() -> None:
    whole = Body.of("héllo", "text/plain")
    cut = Body(text="hé", hash=whole.hash, size_bytes=whole.size_bytes, stored=True)

    assert (whole.whole, whole.size_bytes) == (True, 6)
    assert cut.whole is False


def test_an_annotation_in_the_inbox_is_checked_like_the_event_it_becomes() -> None:
    with pytest.raises(ValidationError, match="turn is given"):
        Annotation(target=TargetKind.TURN, name="n", value=Body.of("1"), source="s")

    annotation = Annotation(target=TargetKind.TURN, turn=0, name="n", value=Body.of("1"), source="s")
    assert annotation.event().model_dump() == annotation.model_dump()


@pytest.mark.parametrize("prefix", ["", "Upper", "1st", "a b", "a\n", "a" * 62])
def test_a_prefix_that_no_topic_may_have_is_refused(prefix: str) -> None:
    with pytest.raises(SettingsError, match="not usable as a topic prefix"):
        Topics(prefix)
