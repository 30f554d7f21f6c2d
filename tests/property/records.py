"""Hypothesis strategies for records of every type, read off the models."""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from functools import cache
from typing import Any

from hypothesis import strategies as st

from tracklog.schemas.catalog import BODIES, ENVELOPES, Kind
from tracklog.schemas.events import (
    Annotated,
    ApprovalResolved,
    Compacted,
    ModelReplied,
    TimerSet,
    ToolIntent,
)
from tracklog.schemas.inbox import Annotation, Decision
from tracklog.schemas.values import (
    Body,
    Choice,
    ContextEdit,
    EditOp,
    Effect,
    Place,
    TargetKind,
    TrajectoryId,
    Value,
    Word,
    check_trajectory_id,
)

Values = st.SearchStrategy[Any]

COUNTS = st.one_of(st.integers(0, 200), st.integers(0, 2**63 - 1))
TEXTS = st.text(max_size=12)


def _printable(text: str) -> bool:
    try:
        check_trajectory_id(text)
    except ValueError:
        return False
    return True


TRAJECTORY_IDS = st.text(min_size=1, max_size=12).filter(_printable)


def bodies(kind: Kind) -> Values:
    """Any body of a kind."""
    return st.one_of([model(body) for body in BODIES[kind].values()])


def envelopes(kind: Kind) -> Values:
    return model(ENVELOPES[kind])


@cache
def model(cls: type[Value]) -> Values:
    """Any legal value of a class."""
    hints = typing.get_type_hints(cls, include_extras=True)
    fields = st.fixed_dictionaries({name: of(hints[name]) for name in cls.model_fields})
    return fields.map(lambda chosen: cls(**_legal(cls, chosen)))


def of(hint: Any) -> Values:
    """Any value of an annotation."""
    if hint == TrajectoryId:
        return TRAJECTORY_IDS
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return _constrained(args[0], {k: v for extra in args[1:] for k, v in _bounds(extra).items()})
    if origin in (typing.Union, types.UnionType):
        return st.one_of(st.none(), *[of(arg) for arg in args if arg is not type(None)])
    if origin is tuple:
        return st.lists(of(args[0]), max_size=3).map(tuple)
    if origin is Mapping:
        return st.dictionaries(TEXTS, of(args[1]), max_size=3)
    return _plain(hint)


def _bounds(extra: Any) -> dict[str, Any]:
    """The constraints that a pydantic Field carries, by name."""
    found: dict[str, Any] = {}
    for constraint in getattr(extra, "metadata", ()):
        found.update(
            {k: getattr(constraint, k) for k in ("ge", "lt", "min_length", "max_length") if hasattr(constraint, k)}
        )
    return found


def _constrained(base: Any, bounds: Mapping[str, Any]) -> Values:
    if base is int:
        wide = st.integers(bounds["ge"], bounds["lt"] - 1)
        return st.one_of(st.integers(0, 200), wide)
    if base is bytes:
        return st.binary(min_size=bounds["min_length"], max_size=bounds["max_length"])
    if base is str:
        return st.text(min_size=bounds.get("min_length", 0), max_size=12)
    return of(base)


def _plain(hint: Any) -> Values:
    if hint is Body:
        return st.one_of(
            TEXTS.map(Body.of), TEXTS.map(lambda text: Body.of(text + "...").model_copy(update={"stored": True}))
        )
    if hint is str:
        return TEXTS
    if hint is bool:
        return st.booleans()
    if issubclass(hint, Word):
        return st.sampled_from(list(hint))
    return model(hint)


def _legal(cls: type[Value], chosen: dict[str, Any]) -> dict[str, Any]:
    """Bends the fields that depend on each other, so that nothing drawn is thrown away."""
    bend = _BENT.get(cls)
    return chosen if bend is None else {**chosen, **bend(chosen)}


def _context_edit(chosen: dict[str, Any]) -> dict[str, Any]:
    if chosen["op"] is EditOp.ADD:
        return {"count": 0, "seqs": chosen["seqs"] or (0,)}
    return {"count": chosen["count"] or 1, "seqs": ()}


def _model_replied(chosen: dict[str, Any]) -> dict[str, Any]:
    return {"tool_calls": tuple({call.call_id: call for call in chosen["tool_calls"]}.values())}


def _approval_resolved(chosen: dict[str, Any]) -> dict[str, Any]:
    some = Body.of("{}")
    return {
        "arguments": chosen["arguments"] or some if chosen["choice"] is Choice.EDIT else None,
        "answer": chosen["answer"] or some if chosen["choice"] is Choice.ANSWER else None,
    }


def _tool_intent(chosen: dict[str, Any]) -> dict[str, Any]:
    if chosen["place"] is Place.RECORDED or chosen["effect"] is Effect.READONLY:
        return {}
    return {
        "not_after": chosen["not_after"] or 0,
        "idempotency_key": chosen["idempotency_key"] or "key",
        "key_ttl_ms": chosen["key_ttl_ms"] or 0,
    }


def _compacted(chosen: dict[str, Any]) -> dict[str, Any]:
    return {"last_turn": max(chosen["first_turn"], chosen["last_turn"])}


def _timer_set(chosen: dict[str, Any]) -> dict[str, Any]:
    if chosen["due_turn"] is None:
        return {"due_at": chosen["due_at"] or 0}
    return {"due_at": None}


def _annotated(chosen: dict[str, Any]) -> dict[str, Any]:
    return {
        "turn": chosen["turn"] or 0 if chosen["target"] is TargetKind.TURN else None,
        "call_id": chosen["call_id"] or "" if chosen["target"] is TargetKind.CALL else None,
    }


_BENT = {
    ContextEdit: _context_edit,
    ModelReplied: _model_replied,
    ApprovalResolved: _approval_resolved,
    Decision: _approval_resolved,
    ToolIntent: _tool_intent,
    Compacted: _compacted,
    TimerSet: _timer_set,
    Annotated: _annotated,
    Annotation: _annotated,
}
