"""What processors make of the events: money and tokens by tenant, and the keys of any projection.

Only `spend` knows whose a number is. The others add up events of all tenants, so they are for tokens of all tenants.
"""

from __future__ import annotations

from datetime import date
from typing import Annotated, Any, Final

from fastapi import HTTPException, Path, Query, Response

from tracklog.consumers.api.routes import PAGE_MAX, Viewer, resource, tenant_of
from tracklog.consumers.api.seeing import Seeing, say_as_of
from tracklog.consumers.api.tokens import Principal
from tracklog.consumers.listing import parse_time
from tracklog.consumers.read_shown import shown_of
from tracklog.schemas.errors import InputError, NotFolded

__all__ = ["router"]

DAY: Final = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
KEY_CHARS_MAX: Final = 500
NAME: Final = r"^[a-z][a-z0-9-]{1,62}$"

router = resource("totals")


def _sees_all(who: Principal) -> None:
    if "*" not in who.tenants:
        raise HTTPException(403, "these numbers are of all tenants together: that needs a token for all of them")


def _checked_day(day: str) -> str:
    try:
        date.fromisoformat(day)
    except ValueError:
        raise InputError(f"day {day!r} is in no calendar", hint="use for example 2026-03-01") from None
    return day


@router.get("/spend")
async def show_spend(
    reader: Seeing,
    response: Response,
    who: Viewer,
    day: Annotated[str, Query(pattern=DAY, description="YYYY-MM-DD, in UTC, by append time")],
    tenant: Annotated[str | None, Query(max_length=200)] = None,
) -> dict[str, Any]:
    """Model calls, tokens and money of a day, by tenant and model. Folded by the processor `spend`."""
    found = await reader.spend(_checked_day(day), tenant=tenant_of(who, tenant))
    rows = []
    for whose, meter in sorted(found.value.items()):
        owner, _, model = whose.partition("|")
        rows.append({"tenant": owner, "model": model, **meter._asdict()})
    return {"day": day, "spend": rows, "as_of": say_as_of(response, found.as_of)}


@router.get("/tool-stats")
async def show_tool_stats(
    reader: Seeing, response: Response, who: Viewer, tool: Annotated[str, Query(min_length=1, max_length=200)]
) -> dict[str, Any]:
    """Calls, statuses and latencies (milliseconds) of a tool, of all tenants. Folded by the processor `tool-stats`."""
    _sees_all(who)
    found = await reader.tool_stats(tool)
    numbers = found.value
    latencies = {"inf" if bound is None else str(bound): count for bound, count in numbers.latencies.items()}
    return {"tool": tool, **numbers._asdict(), "latencies": latencies, "as_of": say_as_of(response, found.as_of)}


@router.get("/activity")
async def show_activity(
    reader: Seeing,
    response: Response,
    who: Viewer,
    at: Annotated[str, Query(max_length=50, description="A time in the minute (ISO 8601, UTC)")],
) -> dict[str, Any]:
    """Events by type of a minute, of all tenants. Folded by the processor `activity`, which keeps eight days."""
    _sees_all(who)
    at_ms = parse_time("at", at)
    assert at_ms is not None
    found = await reader.activity(at_ms)
    return {"at": at, "events": found.value, "as_of": say_as_of(response, found.as_of)}


@router.get("/totals/{name}")
async def show_totals(
    reader: Seeing,
    response: Response,
    who: Viewer,
    name: Annotated[str, Path(pattern=NAME, description="A projection")],
    key: Annotated[str | None, Query(max_length=KEY_CHARS_MAX, description="Left out: the names of its keys")] = None,
    lowest_first: Annotated[bool, Query(description="Of a sorted set: from the lowest score")] = False,
    cursor: Annotated[str | None, Query(max_length=KEY_CHARS_MAX)] = None,
    limit: Annotated[int, Query(ge=1, le=PAGE_MAX)] = 50,
) -> dict[str, Any]:
    """A key of any projection as its processor laid it out: sums over partitions, [score, member] of a sorted set,
    [PARTITION:OFFSET, fields] of a stream from the newest, else what each partition has. `next` is the cursor of the
    page behind this one. Of all tenants."""
    _sees_all(who)
    if key is None and (cursor is not None or lowest_first):
        raise InputError("names of keys have no pages", hint="say which: key=KEY")
    try:
        if key is None:
            names = await reader.keys(name)
            return {"name": name, "keys": names.value, "as_of": say_as_of(response, names.as_of)}
        found = await shown_of(reader, name, key, limit, cursor=cursor, lowest_first=lowest_first)
    except NotFolded as error:
        raise InputError(f"nobody has folded a projection {name!r}", hint=error.hint) from None
    shown = {"name": name, "key": key, "shape": found.value.shape.value, "value": found.value.value}
    return {**shown, "next": found.value.next, "as_of": say_as_of(response, found.as_of)}
