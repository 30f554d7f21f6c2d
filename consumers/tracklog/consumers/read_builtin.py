"""What the processors that come with Tracklog keep, as values with names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import orjson

from tracklog.consumers.read_totals import Ranked
from tracklog.processors.builtin.spend import Meter
from tracklog.processors.builtin.tool_stats import BOUNDS_MS

__all__ = ["Doubted", "Meter", "Still", "ToolTotals", "doubted_of", "meters_of", "still_of", "tool_totals_of"]


class Doubted(NamedTuple):
    """`asked`: the person it was escalated to; empty while it is only in doubt."""

    trajectory_id: str
    call_id: str
    tool: str
    asked: str
    since_ms: int


class Still(NamedTuple):
    """A trajectory that somebody owns, and its last event."""

    trajectory_id: str
    last_ms: int


class ToolTotals(NamedTuple):
    """Of one tool. `statuses` of its calls; `latencies`: calls by the upper bound of their class in milliseconds, None
    for longer ones; `total_ms` of all that have a duration."""

    calls: int
    statuses: Mapping[str, int]
    latencies: Mapping[int | None, int]
    total_ms: int


def meters_of(totals: Mapping[str, int], tenant: str | None) -> dict[str, Meter]:
    """By `TENANT|MODEL`, of all tenants or one, from the fields `TENANT|MODEL|WHAT`."""
    found: dict[str, dict[str, int]] = {}
    for name, number in totals.items():
        whose, _, what = name.rpartition("|")
        if what in Meter._fields and tenant in (None, whose.partition("|")[0]):
            found.setdefault(whose, dict.fromkeys(Meter._fields, 0))[what] = number
    return {whose: Meter(**meter) for whose, meter in found.items()}


def tool_totals_of(counters: Mapping[str, int]) -> ToolTotals:
    statuses = {n.removeprefix("status:"): count for n, count in counters.items() if n.startswith("status:")}
    classes: dict[int | None, str] = {bound: f"le:{bound}" for bound in BOUNDS_MS} | {None: "le:inf"}
    latencies = {bound: counters.get(name, 0) for bound, name in classes.items()}
    return ToolTotals(counters.get("calls", 0), statuses, latencies, counters.get("ms", 0))


def doubted_of(rows: Iterable[Ranked]) -> list[Doubted]:
    found = []
    for one in rows:
        trajectory_id, call_id, tool, asked = orjson.loads(one.member)
        found.append(Doubted(trajectory_id, call_id, tool, asked, one.score))
    return found


def still_of(rows: Iterable[Ranked]) -> list[Still]:
    return [Still(one.member, one.score) for one in rows]
