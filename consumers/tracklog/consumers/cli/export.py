"""`tracklog export`"""

from __future__ import annotations

import threading
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from tracklog.consumers.cli.command import command, new_app
from tracklog.consumers.cli.run import Run
from tracklog.consumers.cli.standing import stopped_by_signals, tell_outage
from tracklog.consumers.observing.role import observed
from tracklog.consumers.observing.roles import of_exporter
from tracklog.consumers.wiring import check_topic, opened_log
from tracklog.infra.clock import Clock, SystemClock, SystemEntropy
from tracklog.infra.collector import collect_rarely
from tracklog.infra.log.port import Log
from tracklog.schemas.errors import InputError, OffsetTrimmed

if TYPE_CHECKING:
    from tracklog.consumers.export.exporter import Committed
    from tracklog.consumers.export.running import Export

TELL_EVERY_S: Final = 5.0
"""Off a terminal, how often a running exporter says how far it is."""
LOOK_S: Final = 1.0
"""Between two looks whether it is told to stop."""

app = new_app()


@command(app)
def export(
    run: Run,
    to: Annotated[
        str | None, typer.Option("--to", metavar="URL", help="A directory, s3:// or gs:// (else cold.url).")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Export what is there now, then leave.")] = False,
    accept_gap: Annotated[
        bool, typer.Option("--accept-gap", help="Go on where the log let go of events before they were exported.")
    ] = False,
) -> None:
    """Stream every event of the log into the cold tier: a Delta Lake table, each record once.

    Runs until it is interrupted, as one member of a consumer group: start as many as you like. How far each
    partition has come is in the table, in the same commit as its rows, so an exporter can be killed at any moment.
    Events are committed when there are enough of them (cold.rows_max, cold.bytes_max), when the oldest has waited for
    cold.age_s, and when nothing more comes. Blobs that events name are brought first.

    \b
    Examples:
      tracklog export --once
      tracklog --log kafka://localhost:9092 export --to s3://bucket/tracklog
      tracklog export --to /mnt/cold --set cold.age_s=10
    """
    if to is not None:
        run = run.with_flags({"cold.url": to})
    collect_rarely()
    with opened_log(run.settings) as log:
        check_topic(log, run.settings)
        work = _opened(run, log, accept_gap=accept_gap)
        stop = stopped_by_signals()
        if once:
            _drain(run, work, stop)
        else:
            work.on_commit = _Teller(run, work, SystemClock())
            with observed("export", run.settings, log, told=run.out.note) as seen:
                of_exporter(seen, work)
                run.out.note(f"exporting to {work.tables.events.uri} as a member of {work.group}; stop with Ctrl-C")
                try:
                    work.loop.run(work.group, stop)
                except OffsetTrimmed as error:
                    if seen is not None:
                        _shown(run, work, error, stop)
                    raise
        _tell(run, work, once=once)
    if work.exporter.unflushed is not None:
        raise work.exporter.unflushed


def _shown(run: Run, work: Export, gap: OffsetTrimmed, stop: threading.Event) -> None:
    """A gap is for a person to judge. Who ends at once, again and again, is never scraped: so it waits as for an
    outage, and its probes and metrics say for what."""
    run.out.warning(f"waiting, for up to {run.settings.loop.outage_timeout_s:g} s: {gap.message}; {gap.hint}")
    clock = SystemClock()
    until_s = clock.monotonic_s() + run.settings.loop.outage_timeout_s
    while clock.monotonic_s() < until_s:
        work.loop.progress.waits(f"{gap.message}; {gap.hint}")
        if stop.wait(LOOK_S):
            return


def _opened(run: Run, log: Log, *, accept_gap: bool) -> Export:
    try:
        from tracklog.consumers.export.running import export_of
    except ImportError as error:
        raise InputError(
            f"exporting needs deltalake and pyarrow: {error}", hint="pip install 'tracklog[export]'"
        ) from error
    work = export_of(
        log,
        run.settings,
        clock=SystemClock(),
        entropy=SystemEntropy(),
        accept_gap=accept_gap,
        on_lost=lambda one: run.out.warning(f"{one.named_by} names a blob that cannot be brought: {one.problem}"),
    )
    work.loop.on_outage = lambda error: tell_outage(run, error)
    return work


def _drain(run: Run, work: Export, stop: threading.Event) -> None:
    """Up to the ends that are there now."""
    unread = sum(work.unread().values())
    with run.out.progress("exporting events", unread) as advance:
        work.on_commit = lambda one: advance(one.events + one.undecodable)
        work.loop.drain(stop=stop)


class _Teller:
    """Says now and then how far a running exporter is; with --json every commit, a line each."""

    def __init__(self, run: Run, work: Export, clock: Clock) -> None:
        self._run = run
        self._work = work
        self._clock = clock
        self._told_s = float("-inf")

    def __call__(self, one: Committed) -> None:
        if self._run.as_json:
            self._run.out.json_line({"committed": one._asdict(), "lag": self._work.lag()})
            self._run.out.flush()
            return
        now = self._clock.monotonic_s()
        if now - self._told_s < TELL_EVERY_S:
            return
        self._told_s = now
        told = self._work.told
        self._run.out.note(
            f"{told.events} events in {told.commits} commits; lag {sum(self._work.lag().values())} offsets; the oldest"
            f" of the last commit was durable {one.durable_s:.1f} s after its append"
        )


def _tell(run: Run, work: Export, *, once: bool) -> None:
    told, blobs = work.told, work.blobs
    if run.as_json:
        fields: dict[str, Any] = asdict(told)
        fields |= {
            "blobs_new": blobs.new,
            "blobs_held": blobs.held,
            "blobs_lost": blobs.lost,
            "uri": work.tables.events.uri,
        }
        if once:
            run.out.json(fields)
        else:
            run.out.json_line({"ended": fields})
        return
    run.out.text(
        f"{told.events} events in {told.commits} commits to {work.tables.events.uri}; {told.undecodable} records are no"
        f" events; {blobs.new} blobs brought, {blobs.lost} not to be had",
        style="yellow" if blobs.lost or told.undecodable else "green",
    )
