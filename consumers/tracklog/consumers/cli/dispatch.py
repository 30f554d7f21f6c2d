"""`tracklog dispatch`"""

from __future__ import annotations

import asyncio
import os
import socket
from functools import partial
from typing import Annotated

import typer

from tracklog.consumers.cli.command import command, new_app
from tracklog.consumers.cli.run import Run
from tracklog.consumers.cli.standing import run_together, stop_at_signals, tell_outage, while_log_lives
from tracklog.consumers.dispatch.dispatcher import Dispatcher
from tracklog.consumers.dispatch.kept import Keeper
from tracklog.consumers.observing.role import Observed, observed
from tracklog.consumers.observing.roles import of_dispatcher
from tracklog.consumers.wiring import blobs_of, check_writable, keeper_for, opened_log
from tracklog.infra.clock import SystemClock, SystemEntropy
from tracklog.infra.collector import collect_rarely
from tracklog.infra.log.port import Log
from tracklog.producers.agents import load_tools
from tracklog.producers.tools import ToolSet

app = new_app()


@command(app)
def dispatch(
    run: Run,
    specs: Annotated[list[str], typer.Argument(metavar="MODULE[:NAME]...", help="Where its tools are.")],
    name: Annotated[str | None, typer.Option(help="What its entries say (else host and process id).")] = None,
) -> None:
    """Perform the calls that agents leave to dispatchers. Start as many as you like: each call is tried by one.

    The agents' workers need worker.dispatches=true, or tools that say run="dispatch". Runs until it is told to stop
    (SIGTERM, Ctrl-C): then calls under way have dispatch.move_wait_s to end. It needs the log and the blob store. With
    a Redis it keeps there how far it has read; without one it reads the log from its beginning when it starts.

    \b
    Examples:
      tracklog dispatch my_agents.travel
      tracklog --log kafka://localhost:9092 dispatch my_tools:bookings my_tools:mail
    """
    tools = load_tools(specs)
    collect_rarely()
    name = name if name is not None else f"{socket.gethostname()}:{os.getpid()}"
    with opened_log(run.settings, make_topics=True) as log, keeper_for(run.settings, log) as keeper:
        check_writable(log, run.settings)
        with observed("dispatch", run.settings, log, told=run.out.note) as seen:
            asyncio.run(_work(run, log, tools, name, keeper, seen))
    run.out.text("stopped")


async def _work(run: Run, log: Log, tools: ToolSet, name: str, keeper: Keeper | None, seen: Observed | None) -> None:
    stop, settings = stop_at_signals(), run.settings
    made = Dispatcher(
        log,
        settings.topic_names,
        tools,
        blobs=blobs_of(settings),
        clock=SystemClock(),
        entropy=SystemEntropy(),
        name=name,
        settings=settings.dispatch,
        loop_settings=settings.loop,
        body_inline_bytes_max=settings.blobs.body_inline_bytes_max,
        keeper=keeper,
        redaction=settings.redaction.before_append(),
        told=run.out.note,
    )
    made.partition_loop.on_outage = lambda error: tell_outage(run, error)
    of_dispatcher(seen, made)
    group = settings.topic_names.group(settings.dispatch.group)
    run.out.note(f"dispatching {', '.join(tools.names)} as a member of {group}; stop with Ctrl-C")
    await run_together(stop, made.run, partial(while_log_lives, log))
