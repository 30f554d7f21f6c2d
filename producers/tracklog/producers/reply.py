"""A model's reply as it is recorded."""

from __future__ import annotations

from tracklog.producers.bodies import json_of
from tracklog.producers.calls import Calls
from tracklog.producers.models import ModelAnswer
from tracklog.producers.record import JSON, Record
from tracklog.schemas import events as ev
from tracklog.schemas.values import ToolCall

__all__ = ["replied"]


async def replied(record: Record, calls: Calls, answer: ModelAnswer) -> ev.ModelReplied:
    """The event of a new answer, under call ids that no earlier call has."""
    return ev.ModelReplied(
        reply=await record.body(json_of("the reply", answer.message), JSON, message=True),
        tool_calls=calls.unique(_recordable(record, answer.tool_calls)),
        stop_reason=answer.stop_reason,
        usage=answer.usage,
        cost_micro_usd=answer.cost_micro_usd,
        model_served=answer.served,
        sampling_seed=answer.seed,
        duration_ms=answer.duration_ms,
    )


def _recordable(record: Record, calls: tuple[ToolCall, ...]) -> tuple[ToolCall, ...]:
    """The calls without secrets; one that had some is refused when it is asked for (`rulings`)."""
    redaction = record.redaction
    if redaction is None:
        return calls
    return tuple(call.model_copy(update={"arguments": redaction.text(call.arguments)}) for call in calls)
