"""What happens, by minute: events of each type. The last eight days of the log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar, Final

from tracklog.processors.processor import Processor, Seen, Shape
from tracklog.processors.writes import Remove, SetFields, Write

MINUTE_MS: Final = 60_000
KEPT_MS: Final = 8 * 24 * 60 * MINUTE_MS


class Activity(Processor[dict[str, int]]):
    """Each is a hash `minute:MS` of counts by event type, MS its beginning since 1970; one for each partition."""

    name = "activity"
    version = 1
    layout: ClassVar = {"minute": Shape.HASH}

    def key(self, seen: Seen) -> str:
        return str(seen.record.timestamp_ms // MINUTE_MS * MINUTE_MS)

    def start(self, key: str) -> dict[str, int]:
        return {}

    def apply(self, state: dict[str, int], seen: Seen) -> dict[str, int]:
        return {**state, seen.event.name: state.get(seen.event.name, 0) + 1}

    def writes(self, key: str, before: Mapping[str, int] | None, after: Mapping[str, int]) -> Iterator[Write]:
        yield SetFields(f"minute:{key}", after)

    def until_ms(self, key: str, state: Mapping[str, int]) -> int:
        return int(key) + KEPT_MS

    def forget(self, key: str, state: Mapping[str, int]) -> Iterator[Write]:
        yield Remove([f"minute:{key}"])
