"""`tracklog process`"""

from __future__ import annotations

import signal
import threading
from typing import Annotated

import typer

from tracklog.consumers.cli.command import command, new_app
from tracklog.consumers.cli.run import Run
from tracklog.consumers.cli.standing import tell_outage
from tracklog.consumers.wiring import check_writable, opened_log, opened_redis, projection_of
from tracklog.infra.collector import collect_rarely

app = new_app()


@command(app)
def process(
    run: Run,
    once: Annotated[bool, typer.Option("--once", help="Fold what is there now, then leave.")] = False,
) -> None:
    """Fold the log into Redis: states, indexes and recent events of all trajectories.

    Runs until it is interrupted, as one member of a consumer group: start as many as you like. Where it starts is
    stored in Redis together with the states, so it can be killed at any moment.

    \b
    Examples:
      tracklog process --once
      tracklog --log kafka://localhost:9092 --redis redis://localhost:6379 process
    """
    collect_rarely()
    with opened_log(run.settings, make_topics=True) as log, opened_redis(run.settings) as client:
        check_writable(log, run.settings)
        running = projection_of(run.settings, log, client)
        running.loop.on_outage = lambda error: tell_outage(run, error)
        stop = _stopped_by_signals()
        if once:
            positions = running.loop.drain(stop=stop)
        else:
            run.out.note(f"folding {run.settings.topic_names.events} as a member of {running.group}; stop with Ctrl-C")
            positions = running.loop.run(running.group, stop)
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
