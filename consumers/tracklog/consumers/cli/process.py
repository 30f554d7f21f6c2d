"""`tracklog process`"""

from __future__ import annotations

import asyncio
from enum import StrEnum
from typing import Annotated, Any

import typer

from tracklog.consumers.cli.command import command, new_app
from tracklog.consumers.cli.loaded import Folder, Load, available, chosen
from tracklog.consumers.cli.run import Run
from tracklog.consumers.cli.standing import stop_at_signals, stopped_by_signals, tell_outage
from tracklog.consumers.observing.role import observed
from tracklog.consumers.observing.roles import of_processes
from tracklog.consumers.wiring import check_writable, opened_log, opened_redis
from tracklog.infra.clock import SystemClock, SystemEntropy
from tracklog.infra.collector import collect_rarely
from tracklog.infra.log.port import Log
from tracklog.infra.log.trimmed import COLD_HINT, kept_in_words
from tracklog.processors.faust_runner import FaustRun, run_on_faust
from tracklog.processors.processor import Processor
from tracklog.processors.running import Processes, processes
from tracklog.processors.spans import Spans
from tracklog.schemas.errors import InputError, SettingsError

app = new_app()


class Runner(StrEnum):
    NATIVE = "native"
    FAUST = "faust"


@command(app)
def process(
    run: Run,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="Processors to run; all when left out.")
    ] = None,
    load: Load = None,
    folder: Folder = None,
    runner: Annotated[Runner, typer.Option(help="What runs them: see docs/processors.md.")] = Runner.NATIVE,
    web_port: Annotated[
        int | None, typer.Option("--web-port", metavar="PORT", help="With faust: its web view, on this machine only.")
    ] = None,
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
      tracklog --set spans.endpoint=http://localhost:4318/v1/traces process spans
      tracklog process failures --load my_views.failures:Failures
      tracklog --log kafka://localhost:9092 process --runner faust --web-port 6066
    """
    if runner is not Runner.FAUST and web_port is not None:
        raise InputError("--web-port is for --runner faust")
    if runner is Runner.FAUST and once:
        raise InputError("--once is for --runner native", hint="Faust follows the log until it is stopped")
    collect_rarely()
    processors, builtin = chosen(available(load, folder), names)
    with opened_log(run.settings, make_topics=True) as log, opened_redis(run.settings) as client:
        check_writable(log, run.settings)
        work = processes(
            [_outward(run, one) for one in processors],
            log,
            client,
            run.settings,
            clock=SystemClock(),
            entropy=SystemEntropy(),
            builtin=builtin,
        )
        work.loop.on_outage = lambda error: tell_outage(run, error)
        work.loop.on_trimmed = lambda partition, first: run.out.warning(
            f"{kept_in_words({partition: first})}: what was before that is missing in what is folded; {COLD_HINT}"
        )
        if once:
            _tell(run, work.drain(stopped_by_signals()))
            return
        with observed("process", run.settings, log, client, told=run.out.note) as seen:
            of_processes(seen, work, client, run.settings.topic_names.prefix)
            if runner is Runner.FAUST:
                _follow_on_faust(run, work, log, web_port)
            else:
                _follow(run, work)


def _outward(run: Run, processor: Processor[Any]) -> Processor[Any]:
    """The one that exports, in place of the one that only knows what to export. Raises SettingsError, InputError."""
    if not isinstance(processor, Spans):
        return processor
    if not run.settings.spans.endpoint:
        raise SettingsError("spans.endpoint is not set: spans go nowhere", hint="set it to an OTLP/HTTP address")
    try:
        from tracklog.processors.spans_otlp import ExportedSpans
    except ModuleNotFoundError as error:
        raise InputError("exporting spans needs the extra otel", hint="pip install 'tracklog[otel]'") from error
    return ExportedSpans(run.settings.spans, SystemClock())


def _follow(run: Run, work: Processes) -> None:
    stop = stopped_by_signals()  # before anybody is told how to stop it
    run.out.note(f"folding {run.settings.topic_names.events} as a member of {work.group}; stop with Ctrl-C")
    _tell(run, work.loop.run(work.group, stop))


def _follow_on_faust(run: Run, work: Processes, log: Log, web_port: int | None) -> None:
    said = f"folding {run.settings.topic_names.events} in the Faust app {work.group}; stop with Ctrl-C"
    asyncio.run(_on_faust(run, FaustRun(work, log, run.settings, web_port=web_port), said))


async def _on_faust(run: Run, on_faust: FaustRun, said: str) -> None:
    stop = stop_at_signals()
    run.out.note(said)
    await run_on_faust(on_faust, stop)


def _tell(run: Run, positions: dict[int, int]) -> None:
    if run.as_json:
        run.out.json({"positions": {str(partition): offset for partition, offset in sorted(positions.items())}})
        return
    folded = ", ".join(f"{partition}:{offset}" for partition, offset in sorted(positions.items()))
    run.out.text(f"folded up to (partition:offset, end exclusive) {folded or 'nothing'}")
