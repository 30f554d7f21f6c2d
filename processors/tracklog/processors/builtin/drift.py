"""What changed when: models, prompts and tools that trajectories crossed over to while they ran."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from tracklog.processors.processor import Processor, Seen, Shape
from tracklog.processors.writes import Push, Write
from tracklog.schemas.events import DriftCrossed


class Drift(Processor[int]):
    """A stream `changes`; the state counts those of a trajectory."""

    name = "drift"
    version = 1
    reads = frozenset({"DriftCrossed"})
    layout: ClassVar = {"changes": Shape.STREAM}

    def start(self, key: str) -> int:
        return 0

    def apply(self, state: int, seen: Seen) -> int:
        return state + 1

    def emit(self, key: str, after: int, seen: Seen) -> Iterator[Write]:
        crossed = seen.event.body
        if not isinstance(crossed, DriftCrossed):
            return
        fields: dict[str, str | int] = {
            "trajectory": key,
            "tenant": seen.event.envelope.tenant,
            "turn": seen.event.envelope.turn,
            "old_model": crossed.old_model,
            "new_model": crossed.new_model,
            "prompt": _change(crossed.old_prompt, crossed.new_prompt),
            "tools": _change(crossed.old_tools, crossed.new_tools),
        }
        yield Push("changes", seen.record.offset, fields)


def _change(old: bytes | None, new: bytes | None) -> str:
    """Both hashes in short; empty when they are the same."""
    if old == new:
        return ""
    return " -> ".join("none" if one is None else one.hex()[:16] for one in (old, new))
