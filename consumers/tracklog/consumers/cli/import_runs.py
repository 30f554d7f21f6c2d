"""`tracklog import`"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import groupby, islice
from pathlib import Path
from typing import Annotated, Final

import typer

from tracklog.consumers.cli.command import command, new_app
from tracklog.consumers.cli.output import Advance
from tracklog.consumers.cli.run import Run
from tracklog.consumers.importing import import_into
from tracklog.consumers.wiring import opened_log
from tracklog.infra.clock import SystemClock
from tracklog.infra.collector import collect_rarely
from tracklog.producers.importers.files import check_paths, read_runs
from tracklog.producers.importers.report import ImportReport

TOLD_MAX: Final = 20
"""Runs named one by one, of each file and kind; --json names all."""

app = new_app()


@command(app)
def import_command(
    run: Run,
    paths: Annotated[
        list[Path], typer.Argument(metavar="PATH...", help="Files, or folders of them: .jsonl, .traj, or .xz of them.")
    ],
    tenant: Annotated[str | None, typer.Option(help="Tenant of the new trajectories (else the setting).")] = None,
    agent: Annotated[str, typer.Option(help="Name of the agent, where a run does not say.")] = "",
    model: Annotated[str, typer.Option(help="Name of the model, where a run does not say.")] = "",
) -> None:
    """Import recorded agent runs, each once.

    Chat-completions runs (one JSON object a line) and SWE-agent trajectories. Doing it again, or after a crash in
    the middle, gives the same events once. Runs that cannot be read are named, the others go in (exit code 1).

    \b
    Example:
      tracklog import runs/ more_runs.jsonl
    """
    check_paths(paths)
    collect_rarely()
    clock = SystemClock()
    started, last = clock.monotonic_s(), ImportReport()

    def watch(advance: Advance, report: ImportReport) -> None:
        nonlocal last
        advance(report.runs - last.runs)
        last = report

    with opened_log(run.settings, make_topics=True, bulk=True) as log:
        runs = read_runs(paths, agent=agent, model=model, redaction=run.settings.redaction.before_append())
        try:
            with run.out.progress("importing runs", None) as advance:
                import_into(log, run.settings, runs, tenant=tenant, on_progress=lambda report: watch(advance, report))
        finally:
            tell(run, last, clock.monotonic_s() - started)
    if last.exit_code:
        run.faulty()


def tell(run: Run, report: ImportReport, seconds: float) -> None:
    """What is durable, also when the import was stopped."""
    if run.as_json:
        run.out.json({**report_map(report), "seconds": round(seconds, 3)})
        return
    for file, bad in groupby(report.refused, key=lambda one: one.file):
        _tell_some(bad, run.out.warning, "refused: {}", f"refused in {file}")
    _tell_some(report.conflicts, run.out.warning, "conflict: {}", "in conflict")
    _tell_some(report.taken, run.out.note, "{}: another importer is writing it at this moment", "being written")
    run.out.text(
        f"{report.new} runs new, {report.resumed} resumed, {report.already} already in,"
        f" {len(report.refused)} refused, {len(report.conflicts)} in conflict;"
        f" {report.events} events durable in {seconds:.1f} s"
    )


def _tell_some(items: Iterable[object], say: Callable[[str], None], text: str, what: str) -> None:
    """The first of them, and how many more there are: a broken file of a million lines takes a screen."""
    rest = iter(items)
    for item in islice(rest, TOLD_MAX):
        say(text.format(item))
    more = sum(1 for _ in rest)
    if more:
        say(f"and {more} more {what}; all of them with --json")


def report_map(report: ImportReport) -> dict[str, object]:
    return {
        "new": report.new,
        "resumed": report.resumed,
        "already": report.already,
        "events": report.events,
        "taken": list(report.taken),
        "refused": [bad.model_dump() for bad in report.refused],
        "conflicts": [conflict._asdict() for conflict in report.conflicts],
    }
