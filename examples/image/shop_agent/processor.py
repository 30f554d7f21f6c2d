"""Orders of each trajectory, and how many of them failed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, NamedTuple

from tracklog.processors.processor import Processor, Seen, Shape
from tracklog.processors.writes import SetFields, Write
from tracklog.schemas.events import ToolResult
from tracklog.schemas.values import ResultStatus


class Placed(NamedTuple):
    results: int = 0
    failed: int = 0


class Orders(Processor[Placed]):
    """A hash `orders:TRAJECTORY`."""

    name = "orders"
    version = 1
    reads = frozenset({"ToolResult"})
    layout: ClassVar = {"orders": Shape.HASH}

    def start(self, key: str) -> Placed:
        return Placed()

    def apply(self, state: Placed, seen: Seen) -> Placed:
        result = seen.event.body
        assert isinstance(result, ToolResult)
        return Placed(state.results + 1, state.failed + (result.status is ResultStatus.ERROR))

    def writes(self, key: str, before: Placed | None, after: Placed) -> Iterator[Write]:
        yield SetFields(f"orders:{key}", after._asdict())
