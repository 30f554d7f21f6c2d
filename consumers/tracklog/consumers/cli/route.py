"""`tracklog route`"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Annotated

import typer

from tracklog.consumers.cli.command import command, new_app
from tracklog.consumers.cli.run import Run
from tracklog.consumers.cli.standing import run_together, stop_at_signals, tell_outage, while_log_lives
from tracklog.consumers.observing.role import Observed, observed
from tracklog.consumers.observing.roles import of_router
from tracklog.consumers.routing.router import Router
from tracklog.consumers.webhooks.announcer import announcer_of
from tracklog.consumers.wiring import agenda_of, check_writable, opened_log, opened_redis
from tracklog.infra.clock import SystemClock
from tracklog.infra.collector import collect_rarely
from tracklog.infra.log.port import Log
from tracklog.infra.redis_client import RedisClient

app = new_app()


@command(app)
def route(
    run: Run,
    speed: Annotated[
        float, typer.Option(metavar="N", min=0.001, max=1e9, help="For tests: timers and requests N times as fast.")
    ] = 1.0,
) -> None:
    """Say into inboxes what time and other trajectories have to say: timers, expired requests, messages. With
    webhooks.urls also tell those addresses which calls wait for a person.

    Start as many as you like: what two of them say is taken once. It needs the log and Redis, which keeps what is open
    and how far the log was read; after a wipe it is read again from the log.

    With --speed N, an hour that a program sleeps, or a request waits, is over after 1/N of it. The clocks of workers
    and of programs go on as ever.

    \b
    Examples:
      tracklog route
      tracklog route --speed 3600
      tracklog --log kafka://localhost:9092 --redis redis://localhost:6379 route
    """
    collect_rarely()
    with opened_log(run.settings, make_topics=True) as log, opened_redis(run.settings) as client:
        check_writable(log, run.settings)
        with observed("route", run.settings, log, client, told=run.out.note) as seen:
            asyncio.run(_work(run, log, client, speed, seen))
    run.out.text("stopped")


async def _work(run: Run, log: Log, client: RedisClient, speed: float, seen: Observed | None) -> None:
    stop, settings = stop_at_signals(), run.settings
    agenda = agenda_of(settings, log, client)
    agenda.loop.on_outage = lambda error: tell_outage(run, error)
    router = Router(log, settings.topic_names, client, agenda, clock=SystemClock(), speed=speed)
    announcer = announcer_of(settings.webhooks, client, agenda, SystemClock())
    of_router(seen, router, agenda, announcer, client)
    faster = "" if speed == 1 else f", time {speed:g} times as fast"
    run.out.note(f"routing as a member of {agenda.group}{faster}; stop with Ctrl-C")
    telling = () if announcer is None else (announcer.run,)
    await run_together(stop, router.run, partial(while_log_lives, log), *telling)
    told = router.counts
    said = f"{told.timers} timers, {told.expiries} expiries, {told.messages} messages, {told.children} child runs"
    run.out.note(said)
    if announcer is not None:
        run.out.note(f"{announcer.told} webhook messages taken, {announcer.given_up} given up")
