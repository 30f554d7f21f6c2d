"""Calls in doubt and with a person, until their outcome is known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar, NamedTuple, TypeVar

import orjson

from tracklog.processors.processor import Processor, Seen, Shape
from tracklog.processors.writes import Rank, Unrank, Write
from tracklog.schemas.events import Escalated, InDoubt, TaskEnded, ToolIntent, ToolResult

V = TypeVar("V")


class Doubt(NamedTuple):
    """`asked`: the person a call was escalated to; empty while it is only in doubt."""

    since_ms: int
    tool: str
    asked: str = ""


class Calls(NamedTuple):
    tools: Mapping[str, str] = {}
    doubts: Mapping[str, Doubt] = {}


class Doubts(Processor[Calls]):
    """A sorted set `open` by the time since when: members are JSON [trajectory, call, tool, who is asked]."""

    name = "doubts"
    version = 1
    reads = frozenset({"ToolIntent", "InDoubt", "Escalated", "ToolResult", "TaskEnded"})
    layout: ClassVar = {"open": Shape.SORTED_SET}

    def start(self, key: str) -> Calls:
        return Calls()

    def apply(self, state: Calls, seen: Seen) -> Calls:
        now_ms = seen.record.timestamp_ms
        match seen.event.body:
            case ToolIntent(call_id=call_id, tool=tool):
                return state._replace(tools={**state.tools, call_id: tool})
            case InDoubt(call_id=call_id):
                doubt = Doubt(now_ms, state.tools.get(call_id, ""))
                return state._replace(doubts={**state.doubts, call_id: doubt})
            case Escalated(call_id=call_id, asked=asked):
                doubt = state.doubts.get(call_id, Doubt(now_ms, state.tools.get(call_id, "")))._replace(asked=asked)
                return state._replace(doubts={**state.doubts, call_id: doubt})
            case ToolResult(call_id=call_id):
                return Calls(_without(state.tools, call_id), _without(state.doubts, call_id))
            case TaskEnded():
                return Calls()
            case _:
                return state

    def writes(self, key: str, before: Calls | None, after: Calls) -> Iterator[Write]:
        was = {} if before is None else before.doubts
        for call_id, doubt in was.items():
            if after.doubts.get(call_id) != doubt:
                yield Unrank(["open"], _member(key, call_id, doubt))
        for call_id, doubt in after.doubts.items():
            if was.get(call_id) != doubt:
                yield Rank(["open"], _member(key, call_id, doubt), doubt.since_ms)


def _member(trajectory_id: str, call_id: str, doubt: Doubt) -> str:
    return orjson.dumps([trajectory_id, call_id, doubt.tool, doubt.asked]).decode()


def _without(held: Mapping[str, V], name: str) -> Mapping[str, V]:
    return {one: value for one, value in held.items() if one != name} if name in held else held
