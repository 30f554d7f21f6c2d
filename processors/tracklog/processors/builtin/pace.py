"""Runs that stand still, and runs that go round in circles."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Final, NamedTuple

from tracklog.processors.processor import Processor, Seen, Shape
from tracklog.processors.writes import Rank, Unrank, Write
from tracklog.schemas.events import ModelReplied, OwnershipReleased, TaskEnded

REPEATS_MIN: Final = 3
"""Replies in a row that propose the same calls with the same arguments, from which a run counts as looping."""


class Pace(NamedTuple):
    """`last_ms`: append time of the last event. `calls`: what the last reply proposed; `repeats`: replies before it, in
    a row, that proposed the same. `held`: somebody owns it, so it should move."""

    last_ms: int = -1
    calls: str = ""
    repeats: int = 0
    held: bool = False


class Paces(Processor[Pace]):
    """Sorted sets of trajectories: `moving` those that somebody owns, by their last event (the first ones stand still
    the longest); `looping` by how often the last calls were proposed."""

    name = "pace"
    version = 1
    layout: ClassVar = {"moving": Shape.SORTED_SET, "looping": Shape.SORTED_SET}

    def start(self, key: str) -> Pace:
        return Pace()

    def apply(self, state: Pace, seen: Seen) -> Pace:
        moved = state._replace(last_ms=seen.record.timestamp_ms, held=True)
        match seen.event.body:
            case ModelReplied(tool_calls=proposed):
                calls = "\n".join(f"{call.tool} {call.arguments}" for call in proposed)
                again = bool(calls) and calls == state.calls
                return moved._replace(calls=calls, repeats=state.repeats + 1 if again else 0)
            case OwnershipReleased():
                return moved._replace(held=False)
            case TaskEnded():
                return Pace(last_ms=moved.last_ms)
            case _:
                return moved

    def writes(self, key: str, before: Pace | None, after: Pace) -> Iterator[Write]:
        yield Rank(["moving"], key, after.last_ms) if after.held else Unrank(["moving"], key)
        if after.repeats + 1 >= REPEATS_MIN:
            yield Rank(["looping"], key, after.repeats + 1)
        elif before is not None and before.repeats + 1 >= REPEATS_MIN:
            yield Unrank(["looping"], key)
