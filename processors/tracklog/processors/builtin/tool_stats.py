"""How tools do: calls, errors and latencies of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar, Final, NamedTuple

from tracklog.processors.processor import Processor, Seen, Shape
from tracklog.processors.writes import Add, Write
from tracklog.schemas.events import TaskEnded, ToolIntent, ToolResult
from tracklog.schemas.values import ResultStatus

BOUNDS_MS: Final = (10, 30, 100, 300, 1_000, 3_000, 10_000, 30_000, 100_000)
"""Upper bounds of the latency classes, in milliseconds; longer ones are in `inf`."""


class Calls(NamedTuple):
    """The tools of a trajectory's open calls by call id, and the one of the call that came out last."""

    open: Mapping[str, str] = {}
    closed: str | None = None


class ToolStats(Processor[Calls]):
    """Each is a hash of counters `tool:NAME`: `calls`, one for each status, `le:BOUND` for latencies (not added up)
    and `ms`; one for each partition."""

    name = "tool-stats"
    version = 1
    reads = frozenset({"ToolIntent", "ToolResult", "TaskEnded"})
    layout: ClassVar = {"tool": Shape.COUNTERS}

    def start(self, key: str) -> Calls:
        return Calls()

    def apply(self, state: Calls, seen: Seen) -> Calls:
        match seen.event.body:
            case ToolIntent(call_id=call_id, tool=tool):
                return Calls({**state.open, call_id: tool})
            case ToolResult(call_id=call_id):
                rest = {name: tool for name, tool in state.open.items() if name != call_id}
                return Calls(rest, state.open.get(call_id))
            case TaskEnded():
                return Calls()
            case _:
                return state

    def emit(self, key: str, after: Calls, seen: Seen) -> Iterator[Write]:
        result = seen.event.body
        if not isinstance(result, ToolResult) or after.closed is None:
            return
        amounts = {"calls": 1, f"status:{result.status.value}": 1}
        if result.duration_ms is not None and result.status is not ResultStatus.UNKNOWN:
            amounts |= {latency_class(result.duration_ms): 1, "ms": result.duration_ms}
        yield Add(f"tool:{after.closed}", amounts)


def latency_class(duration_ms: int) -> str:
    bound = next((one for one in BOUNDS_MS if duration_ms <= one), None)
    return "le:inf" if bound is None else f"le:{bound}"
