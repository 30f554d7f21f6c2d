"""`tracklog cadence`"""

from __future__ import annotations

from typing import Annotated

import typer

from tracklog.consumers.cadence_report import CadenceReport, cadence_report, read_pauses
from tracklog.consumers.cli.command import command, new_app
from tracklog.consumers.cli.run import Run
from tracklog.consumers.wiring import check_topic, opened_log
from tracklog.producers.cadence import TURNS_MAX
from tracklog.producers.whereabouts import check_known, look_up
from tracklog.schemas.errors import InputError

app = new_app()


@command(app)
def cadence(
    run: Run,
    trajectory_id: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="Measured by this trajectory alone (else by all).")
    ] = None,
    failures_a_day: Annotated[
        float | None, typer.Option(min=0.0, help="Reckon with so many failures a day (else the setting).")
    ] = None,
    records: Annotated[int, typer.Option(min=1, help="Look at so many records of each partition, the newest.")] = 20000,
) -> None:
    """Show how often sessions take checkpoints, why, and what it costs.

    The pause is measured: each checkpoint records how long it held up the work. The rate of failures is the setting
    checkpoints.failures_a_day. Young's and Daly's rule balances the two.

    \b
    Examples:
      tracklog cadence
      tracklog cadence trip-1 --failures-a-day 24
    """
    rate = failures_a_day if failures_a_day is not None else run.settings.checkpoints.failures_a_day
    with opened_log(run.settings) as log:
        check_topic(log, run.settings)
        if trajectory_id is not None:
            check_known(look_up(log, run.settings.topic_names, [trajectory_id])[trajectory_id])
        pauses_s = read_pauses(log, run.settings.topic_names.events, trajectory_id, records)
    try:
        report = cadence_report(pauses_s, rate)
    except ValueError as error:
        raise InputError(str(error)) from error
    if run.as_json:
        run.out.json(report._asdict())
        return
    for line in _lines(report):
        run.out.text(line)


def _lines(report: CadenceReport) -> list[str]:
    if report.checkpoints:
        longest = _time(report.pause_longest_s)
        pause = f"{_time(report.pause_s)} (median of {report.checkpoints} checkpoints, longest {longest})"
    else:
        pause = f"{_time(report.pause_s)}, assumed: no checkpoint was measured yet"
    lines = [f"pause      {pause}", f"failures   {report.failures_a_day:g} a day"]
    if report.interval_s is None:
        return [*lines, f"interval   none by time; one every {TURNS_MAX} turns"]
    return [
        *lines,
        f"interval   {_time(report.interval_s)}, or {TURNS_MAX} turns when they come first",
        f"cost       {report.share_checkpoints:.2%} of the time for checkpoints, "
        f"{report.share_again:.2%} for what failures lose",
    ]


def _time(seconds: float) -> str:
    if seconds < 1:
        return f"{seconds * 1000:.3g} ms"
    if seconds < 120:
        return f"{seconds:.3g} s"
    minutes = seconds / 60
    return f"{minutes:.3g} min" if minutes < 120 else f"{minutes / 60:.3g} h"
