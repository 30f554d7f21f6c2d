"""What the lists of `tracklog approvals` and `tracklog escalations` share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Annotated, Final

import typer

from tracklog.consumers.cli.run import Run
from tracklog.consumers.read import Reader
from tracklog.consumers.waiting import WaitingPage, row_of, waiting_in_log
from tracklog.consumers.wiring import agenda_of, check_topic, lag_of, opened_log, opened_views
from tracklog.infra.clock import SystemClock
from tracklog.processors.agenda import Waiting
from tracklog.schemas.errors import NotFolded, StackError, StoreUnavailable

__all__ = ["AGE_UNITS", "ARGUMENTS_CHARS", "Cursor", "Limit", "Tenant", "age", "tell_waiting"]

Tenant = Annotated[str | None, typer.Option(metavar="NAME", help="Of this tenant.")]
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, max=1000, help="At most so many.")]
Cursor = Annotated[str | None, typer.Option(metavar="TOKEN", help="Go on after the page that gave it.")]
ARGUMENTS_CHARS: Final = 60
"""Of a call's arguments in a line; --json has more of them, and a look at the call all."""
AGE_UNITS: Final = (("d", 86_400), ("h", 3_600), ("min", 60))

Cells = Callable[[Waiting, int], tuple[str, ...]]


def tell_waiting(
    run: Run,
    kind: str,
    name: str,
    columns: Sequence[str],
    cells: Cells,
    *,
    tenant: str | None,
    limit: int,
    cursor: str | None,
) -> None:
    """A page of calls that wait, oldest first; `name` is what the list is called, `cells` shows one at a time (us)."""
    page, lag = _page(run, kind, tenant, cursor, limit)
    if lag:
        run.out.warning(f"the list is {lag} records behind the log: is `tracklog route` running?")
    if run.as_json:
        rows = [row_of(one) for one in page.rows]
        run.out.json({name: rows, "next": page.next, "total": page.total, "lag": lag})
        return
    if not page.rows:
        run.out.text(f"no {name}" if page.total == 0 else f"no more {name}")
        return
    now_us = SystemClock().now_us()
    run.out.table(columns, [cells(one, now_us) for one in page.rows], right=("age",))
    if page.next is not None:
        run.out.text(f"{page.total} in all; more: --cursor {page.next}", style="dim")


def age(from_us: int, to_us: int) -> str:
    """A time between two moments in its largest unit."""
    seconds = max(0, (to_us - from_us) // 1_000_000)
    for unit, size in AGE_UNITS:
        if seconds >= size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def _page(run: Run, kind: str, tenant: str | None, cursor: str | None, limit: int) -> tuple[WaitingPage, int]:
    """(the page, how many records the view is behind): from Redis where it is there, else from the log."""
    settings = run.settings
    try:
        with opened_views(settings, agenda_of) as (log, client):
            reader = Reader(client, prefix=settings.prefix)
            page = asyncio.run(reader.waiting(kind, tenant=tenant, cursor=cursor, limit=limit))
            return page.value, lag_of(log, settings.topic_names.events, page.as_of.positions)
    except (StoreUnavailable, NotFolded, StackError) as error:
        run.out.warning(f"the whole log is read, since Redis does not have it: {error.message}")
    with opened_log(settings) as log:
        check_topic(log, settings)
        return waiting_in_log(log, settings.topic_names, kind, tenant=tenant, cursor=cursor, limit=limit), 0
