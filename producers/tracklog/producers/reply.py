"""A model's reply: as the program is given it, and as it is recorded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tracklog.producers.calls import Calls
from tracklog.producers.models import ModelAnswer
from tracklog.producers.readings import as_json
from tracklog.producers.record import JSON, Record
from tracklog.schemas import events as ev
from tracklog.schemas.values import ToolCall

__all__ = ["Reply", "replied"]


@dataclass(frozen=True, slots=True)
class Reply:
    """A model's reply. `message` goes into the next context; its calls have ids that are unique in the run."""

    message: Mapping[str, Any]
    tool_calls: tuple[ToolCall, ...]
    stop_reason: str = ""

    @property
    def text(self) -> str:
        content = self.message.get("content")
        return content if isinstance(content, str) else ""


async def replied(record: Record, calls: Calls, answer: ModelAnswer) -> ev.ModelReplied:
    """The event of a new answer, under call ids that no earlier call has."""
    return ev.ModelReplied(
        reply=await record.body(as_json("the reply", answer.message), JSON),
        tool_calls=calls.unique(answer.tool_calls),
        stop_reason=answer.stop_reason,
        usage=answer.usage,
        cost_micro_usd=answer.cost_micro_usd,
        model_served=answer.served,
        sampling_seed=answer.seed,
        duration_ms=answer.duration_ms,
    )
