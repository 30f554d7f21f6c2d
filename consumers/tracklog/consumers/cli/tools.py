"""`tracklog tools list`, `pause` and `resume`"""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Final

import typer

from tracklog.consumers.cli.command import command, new_app
from tracklog.consumers.cli.replay_output import clock_time
from tracklog.consumers.cli.run import Run
from tracklog.consumers.dispatch.pauses import KNOWN_S_MAX, Pause, PauseBoard, say
from tracklog.consumers.open_calls import OpenCalls, open_in_log, open_in_redis
from tracklog.consumers.wiring import check_writable, keeper_for, lag_of, opened_log
from tracklog.infra.clock import SystemClock
from tracklog.infra.log.port import Log
from tracklog.producers.tools import is_tool_name
from tracklog.schemas.control import ControlBody, ToolPaused, ToolResumed
from tracklog.schemas.errors import InputError, StoreError, TopicMissing
from tracklog.schemas.topics import Topics

ABOUT: Final = "Look at tools that dispatchers run, pause and resume them."

Name = Annotated[str, typer.Argument(metavar="NAME", help="The tool's name, as models see it.")]
Person = Annotated[str, typer.Option("--as", metavar="NAME", help="Who says so; it is recorded.")]
Reason = Annotated[str, typer.Option(metavar="TEXT", help="Why; it is recorded.")]

app = new_app(help=ABOUT, no_args_is_help=True)


@app.callback()
def group() -> None:
    """Look at tools that dispatchers run, pause and resume them."""


@command(app, "list")
def list_command(
    run: Run,
    from_log: Annotated[bool, typer.Option("--from-log", help="Read the log, also where Redis is there.")] = False,
) -> None:
    """List the tools that are paused: by whom, since when and why; and by tool the calls that have no result.

    Of those: queued (nobody has begun to try), begun, and those about which a person is asked. From what a dispatcher
    keeps in Redis, as new as it keeps it; without that from the log, all of which is then read.

    \b
    Examples:
      tracklog tools list --json
      tracklog tools list --from-log
    """
    with opened_log(run.settings) as log:
        paused = PauseBoard(log, run.settings.topic_names).look()
        calls, lag = _open_calls(run, log, from_log=from_log)
    if lag:
        run.out.warning(f"the calls are {lag} records behind the log: is `tracklog dispatch` running?")
    if run.as_json:
        rows = [_map(paused[name]) for name in sorted(paused)]
        run.out.json({"paused": rows, "tools": [{"tool": n, **calls[n]._asdict()} for n in sorted(calls)], "lag": lag})
        return
    names = sorted(paused.keys() | calls.keys())
    if not names:
        run.out.text("no tool is paused, and no call waits")
        return
    columns = ("tool", "queued", "begun", "asked", "paused by", "since", "reason")
    told = [_cells(one, calls.get(one, OpenCalls()), paused.get(one)) for one in names]
    run.out.table(columns, told, right=("queued", "begun", "asked"), wrap=True)


def _open_calls(run: Run, log: Log, *, from_log: bool) -> tuple[dict[str, OpenCalls], int]:
    """(by tool, how many records they are behind)."""
    settings, topics = run.settings, run.settings.topic_names
    if _is_new(log, topics):
        return {}, 0
    if not from_log:
        try:
            with keeper_for(settings, log) as keeper:
                found = None if keeper is None else open_in_redis(keeper, log.partition_count(topics.events))
                if found is not None:
                    return found[0], lag_of(log, topics.events, found[1])
        except StoreError as error:
            run.out.warning(f"the whole log is read, since Redis is not there: {error.message}")
    return open_in_log(log, topics), 0


def _is_new(log: Log, topics: Topics) -> bool:
    """Whether nobody has made its topics: then there is no call either."""
    try:
        log.partition_count(topics.events)
    except TopicMissing:
        return True
    return False


def _cells(name: str, calls: OpenCalls, pause: Pause | None) -> tuple[str, ...]:
    since = ("", "", "") if pause is None else (pause.by, clock_time(pause.since_us // 1000), pause.reason)
    return (name, str(calls.queued), str(calls.begun), str(calls.asked), *since)


@command(app)
def pause(run: Run, name: Name, person: Person, reason: Reason = "") -> None:
    """Have no dispatcher begin calls of the tool, until it is resumed. They wait, as long as their deadlines let them.

    Every dispatcher sees it within 10 s, mostly one. What is on its way goes on. Calls in the agents' own processes are
    not held back.

    \b
    Example:
      tracklog tools pause refund --as ada --reason 'the bank is down'
    """
    _say(run, name, ToolPaused, person, reason)


@command(app)
def resume(run: Run, name: Name, person: Person, reason: Reason = "") -> None:
    """Let dispatchers begin calls of the tool again.

    \b
    Example:
      tracklog tools resume refund --as ada
    """
    _say(run, name, ToolResumed, person, reason)


def _say(run: Run, name: str, kind: type[ToolPaused] | type[ToolResumed], person: str, reason: str) -> None:
    if not is_tool_name(name):
        raise InputError(f"{name!r} is no name of a tool", hint="1 to 64 of A-Z a-z 0-9 _ -")
    if not person:
        raise InputError("nobody says so", hint="--as NAME: it is recorded")
    pausing = kind is ToolPaused
    topics = run.settings.topic_names
    with opened_log(run.settings, make_topics=True) as log:
        check_writable(log, run.settings)
        board = PauseBoard(log, topics)
        paused = board.look()
        before = paused.get(name)
        if not pausing and before is None:
            named = f"paused are {', '.join(sorted(paused))}" if paused else "no tool is paused"
            raise InputError(f"{name} is not paused: there is nothing to resume", hint=named)
        if pausing == (before is None):
            body: ControlBody = kind(tool=name, by=person, reason=reason)
            asyncio.run(say(log, topics, body, by=person, clock=SystemClock()))
        now = board.look().get(name)
    if run.as_json:
        run.out.json(
            {"tool": name, "changed": pausing == (before is None), "paused": None if now is None else _map(now)}
        )
    elif pausing and before is not None:
        run.out.text(f"{name} is paused already, by {before.by} since {clock_time(before.since_us // 1000)}")
    elif pausing:
        run.out.text(f"{name} is paused: every dispatcher knows it within {KNOWN_S_MAX:g} s")
    else:
        run.out.text(f"{name} goes on")


def _map(one: Pause) -> dict[str, Any]:
    return {"tool": one.tool, "by": one.by, "reason": one.reason, "since_us": one.since_us}
