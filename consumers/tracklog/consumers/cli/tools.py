"""`tracklog tools list`, `pause` and `resume`"""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Final

import typer

from tracklog.consumers.cli.command import command, new_app
from tracklog.consumers.cli.replay_output import clock_time
from tracklog.consumers.cli.run import Run
from tracklog.consumers.dispatch.pauses import KNOWN_S_MAX, Pause, PauseBoard, say
from tracklog.consumers.wiring import check_writable, opened_log
from tracklog.infra.clock import SystemClock
from tracklog.producers.tools import is_tool_name
from tracklog.schemas.control import ControlBody, ToolPaused, ToolResumed
from tracklog.schemas.errors import InputError

ABOUT: Final = "Pause and resume tools that dispatchers run."

Name = Annotated[str, typer.Argument(metavar="NAME", help="The tool's name, as models see it.")]
Person = Annotated[str, typer.Option("--as", metavar="NAME", help="Who says so; it is recorded.")]
Reason = Annotated[str, typer.Option(metavar="TEXT", help="Why; it is recorded.")]

app = new_app(help=ABOUT, no_args_is_help=True)


@app.callback()
def group() -> None:
    """Pause and resume tools that dispatchers run."""


@command(app, "list")
def list_command(run: Run) -> None:
    """List the tools that are paused: by whom, since when and why.

    \b
    Example:
      tracklog tools list --json
    """
    with opened_log(run.settings) as log:
        paused = PauseBoard(log, run.settings.topic_names).look()
    rows = [paused[name] for name in sorted(paused)]
    if run.as_json:
        run.out.json({"paused": [_map(one) for one in rows]})
    elif not rows:
        run.out.text("no tool is paused")
    else:
        columns = ("tool", "by", "since", "reason")
        told = [(one.tool, one.by, clock_time(one.since_us // 1000), one.reason) for one in rows]
        run.out.table(columns, told, title="paused", wrap=True)


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
