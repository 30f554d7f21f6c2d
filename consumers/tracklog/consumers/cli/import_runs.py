"""`tracklog import`"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tracklog.consumers.cli.command import command, new_app
from tracklog.consumers.cli.output import Advance
from tracklog.consumers.cli.run import Run
from tracklog.consumers.importing import import_into
from tracklog.consumers.wiring import check_topic, opened_log
from tracklog.infra.clock import SystemClock
from tracklog.infra.collector import collect_rarely
from tracklog.producers.importers.files import read_runs
from tracklog.producers.importers.report import ImportReport

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
    collect_rarely()
    clock = SystemClock()
    started, last = clock.monotonic_s(), ImportReport()

    def watch(advance: Advance, report: ImportReport) -> None:
        nonlocal last
        advance(report.runs - last.runs)
        last = report

    with opened_log(run.settings, make_topics=True, bulk=True) as log:
        check_topic(log, run.settings)
        runs = read_runs(paths, agent=agent, model=model)
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
    for bad in report.refused:
        run.out.warning(f"refused: {bad.file}:{bad.line}: {bad.reason}")
    for conflict in report.conflicts:
        run.out.warning(f"conflict: {conflict}")
    for trajectory_id in report.taken:
        run.out.note(f"{trajectory_id}: another importer is writing it at this moment")
    run.out.text(
        f"{report.new} runs new, {report.resumed} resumed, {report.already} already in,"
        f" {len(report.refused)} refused, {len(report.conflicts)} in conflict;"
        f" {report.events} events durable in {seconds:.1f} s"
    )


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
