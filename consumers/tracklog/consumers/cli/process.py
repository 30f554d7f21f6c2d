"""`tracklog process`"""

from __future__ import annotations

import signal
import threading
from typing import Annotated

import typer

from tracklog.consumers.cli.command import command, new_app
from tracklog.consumers.cli.loaded import Folder, Load, available, chosen
from tracklog.consumers.cli.run import Run
from tracklog.consumers.cli.standing import tell_outage
from tracklog.consumers.wiring import check_writable, opened_log, opened_redis
from tracklog.infra.clock import SystemClock, SystemEntropy
from tracklog.infra.collector import collect_rarely
from tracklog.processors.running import processes

app = new_app()


@command(app)
def process(
    run: Run,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="Processors to run; all when left out.")
    ] = None,
    load: Load = None,
    folder: Folder = None,
    once: Annotated[bool, typer.Option("--once", help="Fold what is there now, then leave.")] = False,
) -> None:
    """Fold the log into Redis: trajectories (states, indexes, recent events), and what other processors make of it.

    Runs until it is interrupted, as one member of a consumer group: start as many as you like, each with the same
    processors. Where each of them starts is stored in Redis together with its states, so it can be killed at any
    moment. Without names it runs those that come with Tracklog, installed ones, and what is loaded.

    \b
    Examples:
      tracklog process --once
      tracklog --log kafka://localhost:9092 --redis redis://localhost:6379 process
      tracklog process failures --load my_views.failures:Failures
    """
    collect_rarely()
    processors, builtin = chosen(available(load, folder), names)
    with opened_log(run.settings, make_topics=True) as log, opened_redis(run.settings) as client:
        check_writable(log, run.settings)
        work = processes(
            processors, log, client, run.settings, clock=SystemClock(), entropy=SystemEntropy(), builtin=builtin
        )
        work.loop.on_outage = lambda error: tell_outage(run, error)
        stop = _stopped_by_signals()
        if once:
            positions = work.drain(stop)
        else:
            run.out.note(f"folding {run.settings.topic_names.events} as a member of {work.group}; stop with Ctrl-C")
            positions = work.loop.run(work.group, stop)
        _tell(run, positions)


def _stopped_by_signals() -> threading.Event:
    """SIGTERM and Ctrl-C end the loop between two batches, so that the group hears of it."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    return stop


def _tell(run: Run, positions: dict[int, int]) -> None:
    if run.as_json:
        run.out.json({"positions": {str(partition): offset for partition, offset in sorted(positions.items())}})
        return
    folded = ", ".join(f"{partition}:{offset}" for partition, offset in sorted(positions.items()))
    run.out.text(f"folded up to (partition:offset, end exclusive) {folded or 'nothing'}")
