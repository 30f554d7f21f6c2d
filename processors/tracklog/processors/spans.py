"""Spans out of the log: one for each trajectory, model call and tool call, by the GenAI semantic conventions.

Ids come from what they are about, so a span that is exported again is the same span:

    trace    of the recorded trace parent, else from the trajectory's id
    span     of a trajectory from its id, of a model call from its reply's, of a tool call from that of its intent

They carry no content: no prompts, arguments or results.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import ClassVar, Final, NamedTuple

from tracklog.processors.processor import Processor, Seen
from tracklog.schemas.events import (
    ContextBuilt,
    InDoubt,
    ModelReplied,
    TaskEnded,
    TaskStarted,
    ToolIntent,
    ToolResult,
)
from tracklog.schemas.values import Ending, ResultStatus

__all__ = ["Run", "Span", "Spans", "trace_of"]

Value = str | int | tuple[str, ...]

KEPT_MS: Final = 60_000
"""For so long a run that ended is remembered, by the time of the log."""
_NS_PER_US: Final = 1000
_NS_PER_MS: Final = 1_000_000
_PARENT: Final = re.compile(r"00-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-[0-9a-f]{2}")


class Span(NamedTuple):
    """Ids in hex: of 16 bytes for a trace, of 8 for a span. Times in nanoseconds since 1970 UTC. `error`: what kind of
    failure it was, empty for none. `calls_out`: whether it is a call of something else."""

    trace: str
    span: str
    parent: str
    name: str
    start_ns: int
    end_ns: int
    attributes: Mapping[str, Value] = {}
    error: str = ""
    calls_out: bool = False


class OpenCall(NamedTuple):
    span: str
    tool: str
    since_us: int
    effect: str
    doubts: int = 0


class Run(NamedTuple):
    """What is known of a trajectory that goes on. `closed`: the spans that its last event ended."""

    trace: str
    root: str
    parent: str = ""
    started_us: int = -1
    asked_us: int = -1
    ended_ms: int = -1
    agent: str = ""
    model: str = ""
    about: Mapping[str, str] = {}
    calls: Mapping[str, OpenCall] = {}
    closed: tuple[Span, ...] = ()


def trace_of(trajectory_id: str) -> tuple[str, str]:
    """Trace and span of a trajectory without a trace parent."""
    digest = hashlib.sha256(b"tracklog-trace\x00" + trajectory_id.encode()).hexdigest()
    return digest[:32], digest[32:48]


class Spans(Processor[Run]):
    """Keeps what is open; the spans of each event are in the state after it (`closed`)."""

    name = "spans"
    version = 1
    reads = frozenset(
        {"TaskStarted", "ContextBuilt", "ModelReplied", "ToolIntent", "InDoubt", "ToolResult", "TaskEnded"}
    )
    layout: ClassVar = {}

    def start(self, key: str) -> Run:
        return Run(*trace_of(key))

    def apply(self, state: Run, seen: Seen) -> Run:
        now_us = seen.event.envelope.recorded_at
        run = state._replace(closed=())
        match seen.event.body:
            case TaskStarted() as started:
                return _started(run, started, seen)
            case ContextBuilt():
                return run._replace(asked_us=now_us)
            case ModelReplied() as reply:
                return run._replace(closed=(_replied(run, reply, seen),), asked_us=-1)
            case ToolIntent() as intent:
                call = OpenCall(_span_id(seen), intent.tool, now_us, intent.effect.value)
                return run._replace(calls={**run.calls, intent.call_id: call})
            case InDoubt(call_id=call_id) if call_id in run.calls:
                doubted = run.calls[call_id]
                return run._replace(calls={**run.calls, call_id: doubted._replace(doubts=doubted.doubts + 1)})
            case ToolResult() as result:
                rest = {name: call for name, call in run.calls.items() if name != result.call_id}
                return run._replace(closed=_called(run, result, seen), calls=rest)
            case TaskEnded() as ended:
                closed = () if run.started_us < 0 else (_ended(run, ended, seen),)
                return run._replace(closed=closed, calls={}, ended_ms=seen.record.timestamp_ms)
        return run

    def until_ms(self, key: str, state: Run) -> int | None:
        return None if state.ended_ms < 0 else state.ended_ms + KEPT_MS


def _started(run: Run, started: TaskStarted, seen: Seen) -> Run:
    envelope = seen.event.envelope
    about = {
        "tracklog.trajectory.id": envelope.trajectory_id,
        "tracklog.tenant": envelope.tenant,
        "tracklog.driver": started.driver.value,
        "tracklog.parent.trajectory.id": "" if started.parent is None else started.parent.trajectory_id,
        "tracklog.origin.trajectory.id": "" if started.origin is None else started.origin.trajectory_id,
        "gen_ai.conversation.id": started.conversation_id or "",
    }
    found = _PARENT.fullmatch(started.trace_parent or "")
    return run._replace(
        trace=run.trace if found is None else found[1],
        parent="" if found is None else found[2],
        started_us=envelope.recorded_at,
        agent=started.agent,
        model=started.model,
        about={name: value for name, value in about.items() if value},
    )


def _replied(run: Run, reply: ModelReplied, seen: Seen) -> Span:
    end_us = seen.event.envelope.recorded_at
    asked_us = run.asked_us if 0 <= run.asked_us <= end_us else end_us
    start_ns = asked_us * _NS_PER_US
    if reply.duration_ms is not None:
        start_ns = end_us * _NS_PER_US - reply.duration_ms * _NS_PER_MS
    model = run.model or reply.model_served
    attributes: dict[str, Value] = {
        **_own(run, seen, "chat"),
        "gen_ai.request.model": model,
        "gen_ai.response.model": reply.model_served or model,
        "gen_ai.usage.input_tokens": reply.usage.input_tokens,
        "gen_ai.usage.output_tokens": reply.usage.output_tokens,
    }
    if reply.stop_reason:
        attributes["gen_ai.response.finish_reasons"] = (reply.stop_reason,)
    if reply.cost_micro_usd is not None:
        attributes["tracklog.cost.micro_usd"] = reply.cost_micro_usd
    end_ns = end_us * _NS_PER_US
    return Span(run.trace, _span_id(seen), run.root, f"chat {model}", start_ns, end_ns, attributes, calls_out=True)


def _called(run: Run, result: ToolResult, seen: Seen) -> tuple[Span, ...]:
    """Nothing for an answer without an intent: nobody called anything."""
    call = run.calls.get(result.call_id)
    if call is None:
        return ()
    status = result.status
    attributes: dict[str, Value] = {
        **_own(run, seen, "execute_tool"),
        "gen_ai.tool.name": call.tool,
        "gen_ai.tool.call.id": result.call_id,
        "tracklog.call.effect": call.effect,
        "tracklog.call.status": status.value,
        "tracklog.call.settled": result.settled.value,
        "tracklog.call.doubts": call.doubts,
    }
    times = call.since_us * _NS_PER_US, seen.event.envelope.recorded_at * _NS_PER_US
    error = "" if status is ResultStatus.OK else status.value
    return (Span(run.trace, call.span, run.root, f"execute_tool {call.tool}", *times, attributes, error),)


def _ended(run: Run, ended: TaskEnded, seen: Seen) -> Span:
    attributes = {**_own(run, seen, "invoke_agent"), **run.about, "tracklog.ending": ended.ending.value}
    if run.model:
        attributes["gen_ai.request.model"] = run.model
    times = run.started_us * _NS_PER_US, seen.event.envelope.recorded_at * _NS_PER_US
    error = ended.ending.value if ended.ending in (Ending.FAILED, Ending.REFUSED) else ""
    return Span(run.trace, run.root, run.parent, f"invoke_agent {run.agent}", *times, attributes, error)


def _own(run: Run, seen: Seen, operation: str) -> dict[str, Value]:
    """What all spans have. `tracklog.seq`: the event that ended it."""
    envelope = seen.event.envelope
    return {
        "gen_ai.operation.name": operation,
        "gen_ai.agent.name": run.agent,
        "tracklog.trajectory.id": envelope.trajectory_id,
        "tracklog.tenant": envelope.tenant,
        "tracklog.turn": envelope.turn,
        "tracklog.seq": envelope.seq,
    }


def _span_id(seen: Seen) -> str:
    return seen.event.envelope.event_id[:8].hex()
