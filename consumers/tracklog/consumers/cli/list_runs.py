"""`tracklog list`"""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import typer

from tracklog.consumers.cli.command import command, new_app
from tracklog.consumers.cli.replay_output import clock_time
from tracklog.consumers.cli.run import Run
from tracklog.consumers.listing import SAMPLE, Listed, listed, parse_labels, parse_time
from tracklog.consumers.read import Answer, Filter, Reader
from tracklog.consumers.read_filter import checked_status
from tracklog.consumers.summary import one_line
from tracklog.consumers.ways_out import stopped_words
from tracklog.consumers.where import Where
from tracklog.consumers.wiring import lag_of, opened_views

app = new_app()


@command(app)
def list_command(
    run: Run,
    tenant: Annotated[str | None, typer.Option(help="Of this tenant.")] = None,
    status: Annotated[str | None, typer.Option(help="In this status, e.g. running, completed, 'in doubt'.")] = None,
    tool: Annotated[str | None, typer.Option(help="That called this tool.")] = None,
    model: Annotated[str | None, typer.Option(help="That asked for or was served this model.")] = None,
    label: Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="With this label; repeatable.")] = None,
    since: Annotated[str | None, typer.Option(metavar="TIME", help="Last append at or after (ISO 8601, UTC).")] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", help="Last append before.")] = None,
    where: Annotated[
        str | None, typer.Option(metavar="CEL", help="A condition, e.g. 'tool_calls > 5 && labels.reward == \"0\"'.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=1000, help="At most so many.")] = 20,
    cursor: Annotated[str | None, typer.Option(metavar="TOKEN", help="Go on after the page that gave it.")] = None,
) -> None:
    """List trajectories from Redis, newest append first. All conditions must hold.

    \b
    Examples:
      tracklog list --tool book_reservation --label reward=0
      tracklog list --where 'turn > 20 && status == "completed"' --json
    """
    condition = None if where is None else Where(where, SAMPLE)
    wanted = Filter(
        tenant=tenant,
        status=checked_status(status),
        tool=tool,
        model=model,
        labels=parse_labels(label or []),
        since_ms=parse_time("--since", since),
        until_ms=parse_time("--until", until),
    )
    with opened_views(run.settings) as (log, client):
        reader = Reader(client, prefix=run.settings.prefix)
        page = asyncio.run(listed(reader, wanted, condition, cursor=cursor, limit=limit))
        lag = lag_of(log, run.settings.topic_names.events, page.as_of.positions)
    tell(run, page, lag=lag)


def tell(run: Run, answer: Answer[Listed], *, lag: int = 0) -> None:
    page = answer.value
    tell_lag(run, lag)
    if run.as_json:
        as_of = answer.as_of.as_map()
        run.out.json({"trajectories": page.rows, "next": page.next, "as_of": as_of, "lag": lag})
        return
    if not page.rows:
        run.out.text("no trajectory matches")
        return
    columns = ("trajectory", "status", "turns", "events", "calls", "last append (UTC)", "labels")
    run.out.table(columns, [_cells(row) for row in page.rows], right=("turns", "events", "calls"))
    for line in stopped_words(page.rows):
        run.out.text(line, style="yellow")
    if page.next is not None:
        run.out.text(f"more: --cursor '{page.next}'", style="dim")


def tell_lag(run: Run, lag: int) -> None:
    if lag:
        run.out.warning(f"Redis is {lag} records behind the log: is `tracklog process` running?")


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    labels = one_line(" ".join(f"{name}={value}" for name, value in row["labels"].items()), 60)
    numbers = (str(row["turn"]), str(row["events"]), str(row["tool_calls"]))
    return (row["trajectory_id"], row["status"], *numbers, clock_time(row["last_ms"])[:19], labels)
