"""Trajectories as rows: what a list shows of each, what a filter in CEL may ask for, and pages that are full."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from tracklog.consumers.read import Answer, AsOf, Cursor, Filter, Page, Reader
from tracklog.consumers.where import Where
from tracklog.processors.trajectory import Trajectory
from tracklog.schemas.errors import InputError

READ_AHEAD: Final = 200
"""Trajectories read at a time while a condition is looked for."""

SAMPLE: Final[Mapping[str, Any]] = {
    "trajectory_id": "",
    "tenant": "",
    "status": "",
    "parked": "",
    "agent": "",
    "driver": "",
    "model": "",
    "labels": {},
    "tools": {},
    "turn": 0,
    "events": 0,
    "epoch": 0,
    "seq": 0,
    "model_calls": 0,
    "tool_calls": 0,
    "input_tokens": 0,
    "output_tokens": 0,
    "cost_usd": 0.0,
    "tool_ms": 0,
    "open_intents": 0,
    "pending_approvals": 0,
    "annotations": 0,
    "faults": 0,
    "irregular": 0,
    "unknown": 0,
    "harmless": {},
    "reason": "",
    "partition": 0,
    "first_offset": 0,
    "last_offset": 0,
    "first_ms": 0,
    "last_ms": 0,
}
"""Every field of a row, with a value of its type. `parked` is why its last owner let go of one that has not ended: a
`failed` one that has it can be retried, without it it has ended. `tools` and `harmless` are counts by name; times are
of appends, in milliseconds since 1970 UTC."""


class Listed(NamedTuple):
    """A page of rows, newest append first; `next` is the cursor of the page after it, None at the end."""

    rows: list[dict[str, Any]]
    next: str | None


def row_of(trajectory: Trajectory) -> dict[str, Any]:
    state, spent = trajectory.state, trajectory.state.spent
    row = {
        "trajectory_id": state.trajectory_id,
        "tenant": state.tenant,
        "status": trajectory.status,
        "parked": state.parked,
        "agent": trajectory.agent,
        "driver": trajectory.driver,
        "model": trajectory.model,
        "labels": dict(state.task.labels) if state.task is not None else {},
        "tools": dict(state.tools),
        "turn": state.turn,
        "events": state.events,
        "epoch": state.head.epoch,
        "seq": state.head.seq,
        "model_calls": spent.model_calls,
        "tool_calls": spent.tool_calls,
        "input_tokens": spent.input_tokens,
        "output_tokens": spent.output_tokens,
        "cost_usd": spent.cost_micro_usd / 1_000_000,
        "tool_ms": spent.tool_ms,
        "open_intents": len(state.open_intents),
        "pending_approvals": len(state.pending_approvals),
        "annotations": state.annotations,
        "faults": state.faults,
        "irregular": state.irregular,
        "unknown": state.unknown,
        "harmless": dict(state.harmless),
        "reason": state.reason,
        "partition": trajectory.partition,
        "first_offset": trajectory.first_offset,
        "last_offset": trajectory.last_offset,
        "first_ms": trajectory.first_ms,
        "last_ms": trajectory.last_ms,
    }
    assert row.keys() == SAMPLE.keys()
    return row


async def listed(
    reader: Reader, wanted: Filter, where: Where | None, *, cursor: str | None, limit: int
) -> Answer[Listed]:
    """At most `limit` rows that pass both filters. With a condition, pages are read until enough have passed."""
    start = None if cursor is None else Cursor.of(cursor)
    if where is None:
        page, as_of = await _page(reader, wanted, start, limit)
        return Answer(Listed([row_of(one) for one in page.trajectories], _token(page.next)), as_of)
    rows: list[dict[str, Any]] = []
    first: AsOf | None = None
    while True:
        page, as_of = await _page(reader, wanted, start, READ_AHEAD)
        first = as_of if first is None else first  # the least that all pages have in them
        for one in page.trajectories:
            row = row_of(one)
            if where.matches(row):
                rows.append(row)
                if len(rows) == limit:
                    return Answer(Listed(rows, _token(Cursor(one.last_ms, one.trajectory_id))), first)
        if page.next is None:
            return Answer(Listed(rows, None), first)
        start = page.next


async def _page(reader: Reader, wanted: Filter, start: Cursor | None, limit: int) -> tuple[Page, AsOf]:
    found = await reader.states(wanted, start, limit)
    return found.value, found.as_of


def parse_labels(given: list[str], option: str = "--label ") -> dict[str, str]:
    """`name=value` each. `option`: how one is said, up to it. Raises InputError."""
    labels = {}
    for text in given:
        name, separator, value = text.partition("=")
        if not separator or not name:
            raise InputError(f"{option}{text!r} is no label", hint=f"write {option}name=value")
        labels[name] = value
    return labels


def parse_time(option: str, text: str | None) -> int | None:
    """Milliseconds since 1970 of an ISO 8601 time, UTC where it names no zone. Raises InputError."""
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise InputError(f"{option} {text!r} is no time", hint="use for example 2026-03-01T12:00:00Z") from None
    return int((moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def _token(cursor: Cursor | None) -> str | None:
    return None if cursor is None else cursor.token()
