"""`tracklog watch`"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Annotated, Final

import typer

from tracklog.consumers.cli.command import command, new_app
from tracklog.consumers.cli.replay_output import clock_time
from tracklog.consumers.cli.run import Run
from tracklog.consumers.cli.standing import stop_at_signals
from tracklog.consumers.overview import Overview, overview
from tracklog.consumers.read import Reader
from tracklog.consumers.read_builtin import Doubted
from tracklog.consumers.read_events import Standing
from tracklog.consumers.summary import call_name, summary
from tracklog.consumers.watching import (
    Standings,
    Start,
    Token,
    Wanted,
    Watched,
    standings_of,
    start_of,
    types_of,
    watch,
    watched_map,
)
from tracklog.consumers.wiring import (
    check_topic,
    everything_of,
    folds_itself,
    opened_log,
    opened_redis,
    opened_views,
    projection_of,
)
from tracklog.infra.clock import SystemClock
from tracklog.infra.log.port import Log
from tracklog.schemas.errors import InputError

app = new_app()

EVERY_S: Final = 2.0
MONEY: Final = 1_000_000


@command(app, name="watch")
def watch_command(
    run: Run,
    events: Annotated[bool, typer.Option("--events", help="Follow the events instead of showing a table.")] = False,
    start: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="PLACE", help="With --events: end, beginning, a time (ISO 8601), PARTITION:OFFSET[,...]."
        ),
    ] = None,
    after: Annotated[
        str | None, typer.Option(metavar="TOKEN", help="With --events: go on behind the event that gave it.")
    ] = None,
    types: Annotated[list[str] | None, typer.Option("--type", metavar="TYPE", help="Only these; repeatable.")] = None,
    tenant: Annotated[list[str] | None, typer.Option(help="Only of these tenants; repeatable.")] = None,
    trajectory: Annotated[list[str] | None, typer.Option("--id", metavar="ID", help="Only these; repeatable.")] = None,
    agent: Annotated[list[str] | None, typer.Option(help="With --events: only of these agents; repeatable.")] = None,
    status: Annotated[
        list[str] | None, typer.Option(help="With --events: only of trajectories that stand so; repeatable.")
    ] = None,
    count: Annotated[
        int | None, typer.Option("--count", "-n", min=1, help="Leave after so many events, or looks at the table.")
    ] = None,
) -> None:
    """Watch agents at work: who runs, what is in doubt, who waits for a person, what it costs; or every event.

    The table comes from Redis (`tracklog process` folds it), again every two seconds. --events reads the log itself:
    accepted events of all trajectories as they come, with --json one object a line, each with the token to go on from.

    \b
    Examples:
      tracklog watch
      tracklog watch --events --type ToolIntent --type InDoubt
      tracklog watch --events --from 2026-03-01T12:00:00Z --json
      tracklog watch --events --agent traveller --status failed
    """
    if not events:
        if start or after or types or tenant or trajectory or agent or status:
            raise InputError("these options are for events", hint="say --events as well")
        _watch_table(run, count)
        return
    if start is not None and after is not None:
        raise InputError("--from and --after both say where to begin", hint="give one of them")
    wanted = Wanted(types_of(types or ()), *(frozenset(named or ()) for named in (tenant, trajectory, agent, status)))
    place = Token.of(after) if after is not None else start_of(start) if start is not None else "end"
    asyncio.run(_follow(run, wanted, place, count))


async def _follow(run: Run, wanted: Wanted, start: Start, count: int | None) -> None:
    stop = stop_at_signals()
    with opened_log(run.settings, make_topics=True) as log, _standings(run, log, wanted) as standings:
        check_topic(log, run.settings)
        topic, left = run.settings.topic_names.events, count
        if run.out.errors.is_terminal:
            run.out.note(f"following {topic}; stop with Ctrl-C")
        async for watched in watch(log, topic, start=start, wanted=wanted, standings=standings, stopping=stop.is_set):
            _tell_event(run, watched)
            run.out.flush()
            left = None if left is None else left - 1
            if left == 0:
                return


@contextmanager
def _standings(run: Run, log: Log, wanted: Wanted) -> Iterator[Standings | None]:
    """How trajectories stand, from Redis where that is asked for; folded first where nobody else does that."""
    if not wanted.asks_standing:
        yield None
        return
    with opened_redis(run.settings) as client:
        known = standings_of(Reader(client, prefix=run.settings.prefix, log=log))

        async def folded(events: Sequence[Watched]) -> Mapping[str, Standing]:
            await asyncio.to_thread(projection_of(run.settings, log, client).loop.drain)
            return await known(events)

        yield folded if folds_itself(run.settings) else known


def _tell_event(run: Run, watched: Watched) -> None:
    if run.as_json:
        run.out.json_line(watched_map(watched))
        return
    event, when = watched.event, clock_time(watched.record.timestamp_ms)
    call_id = getattr(event.body, "call_id", None) or ""
    name = call_name(call_id)  # summaries name the call, mostly by the end of its id
    says = summary(event).removeprefix(f"{name}: ").removesuffix(f" · {name}") if call_id else summary(event)
    parts = event.envelope.trajectory_id, f"turn {event.envelope.turn}", event.name, call_id, says
    run.out.text("  ".join((when, *filter(None, parts))))


def _watch_table(run: Run, count: int | None) -> None:
    clock, looks, pause = SystemClock(), 0, threading.Event()
    with opened_views(run.settings, everything_of) as (log, client), _screen(run) as show:
        reader = Reader(client, prefix=run.settings.prefix)
        while looks != count:
            if looks:
                pause.wait(EVERY_S)
            if looks and folds_itself(run.settings):
                everything_of(run.settings, log, client).loop.drain()
            show(asyncio.run(overview(reader, clock.now_us() // 1000)))
            looks += 1


@contextmanager
def _screen(run: Run) -> Iterator[Callable[[Overview], None]]:
    """A table that stays in its place on a terminal, a line for each look elsewhere."""
    if run.as_json:
        yield lambda seen: run.out.json_line(seen.as_map())
        return
    if not run.out.console.is_terminal:
        yield lambda seen: run.out.text(_line(seen))
        return
    from rich.console import Group
    from rich.live import Live
    from rich.table import Table

    with Live(console=run.out.console, refresh_per_second=4) as live:

        def show(seen: Overview) -> None:
            table = Table("trajectory", "agent", "model", "turn", "events", "cost $", "last append (UTC)")
            for row in seen.running:
                cost, when = f"{row['cost_usd']:.4f}", clock_time(row["last_ms"])
                cells = (row["trajectory_id"], row["agent"], row["model"], row["turn"], row["events"], cost, when)
                table.add_row(*map(str, cells))
            live.update(Group(_line(seen), table))

        yield show


def _line(seen: Overview) -> str:
    """All of it in one line."""
    statuses = ", ".join(f"{word} {number}" for word, number in seen.counts.items() if number and word != "all")
    parts = [f"{seen.counts.get('all', 0)} trajectories" + (f" ({statuses})" if statuses else "")]
    if seen.last_minute is not None:
        parts.append(f"{sum(seen.last_minute.values())} events in the last minute")
    if seen.doubted is not None:
        parts.append(f"in doubt: {', '.join(_doubt(one) for one in seen.doubted) or 'none'}")
    if seen.approvals is not None:
        parts.append(f"waiting for approval: {seen.approvals}")
    if seen.looping:
        parts.append("looping: " + ", ".join(f"{name} ({number}x)" for name, number in seen.looping.items()))
    if seen.today is not None:
        parts.append(f"today ${sum(one.cost_micro_usd for one in seen.today.values()) / MONEY:.4f}")
    return " · ".join(parts)


def _doubt(one: Doubted) -> str:
    return f"{one.trajectory_id}/{one.call_id} since {clock_time(one.since_ms)}"
