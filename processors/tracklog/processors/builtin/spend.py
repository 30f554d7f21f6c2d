"""Tokens and money by day, tenant and model."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import ClassVar, NamedTuple

from tracklog.processors.processor import Processor, Seen, Shape
from tracklog.processors.writes import SetFields, Write
from tracklog.schemas.events import ModelReplied


class Meter(NamedTuple):
    """`unpriced`: calls whose cost is not known."""

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_micro_usd: int = 0
    unpriced: int = 0


class Spend(Processor[Meter]):
    """A hash `meter:DAY` of fields `TENANT|MODEL|WHAT`, the day in UTC by append time; of each partition, to be added
    up."""

    name = "spend"
    version = 1
    reads = frozenset({"ModelReplied"})
    layout: ClassVar = {"meter": Shape.HASH}

    def key(self, seen: Seen) -> str | None:
        reply = seen.event.body
        if not isinstance(reply, ModelReplied):
            return None
        day = datetime.fromtimestamp(seen.record.timestamp_ms / 1000, UTC).date()
        return f"{day}|{seen.event.envelope.tenant}|{reply.model_served}"

    def start(self, key: str) -> Meter:
        return Meter()

    def apply(self, state: Meter, seen: Seen) -> Meter:
        reply = seen.event.body
        assert isinstance(reply, ModelReplied)
        return Meter(
            state.calls + 1,
            state.input_tokens + reply.usage.input_tokens,
            state.output_tokens + reply.usage.output_tokens,
            state.cost_micro_usd + (reply.cost_micro_usd or 0),
            state.unpriced + (reply.cost_micro_usd is None),
        )

    def writes(self, key: str, before: Meter | None, after: Meter) -> Iterator[Write]:
        day, _, whose = key.partition("|")
        yield SetFields(f"meter:{day}", {f"{whose}|{what}": number for what, number in after._asdict().items()})
