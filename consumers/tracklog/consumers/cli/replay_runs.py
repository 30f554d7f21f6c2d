"""`tracklog replay trajectory`: an agent over a record."""

from __future__ import annotations

from typing import Annotated

import typer

from tracklog.consumers.cli.run import Run
from tracklog.consumers.trajectory_replay import (
    agents_by_name,
    divergence_lines,
    how_far,
    replay_trajectory,
    report_map,
)
from tracklog.consumers.wiring import check_topic, opened_log
from tracklog.producers.again import Again
from tracklog.producers.replay import Report

AgentOption = Annotated[
    str | None, typer.Option(metavar="MODULE:AGENT", help="The agent (else what the record says of its own).")
]
AgainOption = Annotated[list[Again] | None, typer.Option("--again", help="Ask this once more and compare; repeatable.")]


def trajectory(
    run: Run,
    trajectory_id: Annotated[str, typer.Argument(metavar="ID", help="The trajectory.")],
    agent: AgentOption = None,
    again: AgainOption = None,
) -> None:
    """Run an agent over the record of a trajectory, and report where it does something else than is recorded.

    No model and no tool is called, sockets are closed, nothing is written. What the agent's code reads outside its
    session (clock, randomness, ids, listings, environment) is a divergence too, named by file and line. A run that
    was not finished is replayed as far as it goes, an imported one as far as it says what its harness did. --again
    model asks the agent's model at each context, --again steps runs each step. Exit code 1 when it diverges.

    \b
    Examples:
      tracklog replay trajectory airline-17-3
      tracklog replay trajectory trip-1 --agent my_agents:traveller --json
      tracklog replay trajectory trip-1 --agent my_agents:traveller --again model
    """
    agents = agents_by_name([] if agent is None else [agent])
    with opened_log(run.settings) as log:
        check_topic(log, run.settings)
        report = replay_trajectory(log, run.settings, agents, trajectory_id, again or ())
    if run.as_json:
        run.out.json(report_map(report))
    else:
        tell_report(run, report)
    if not report.clean:
        run.faulty()


def tell_report(run: Run, report: Report) -> None:
    if report.clean:
        unfinished = "" if report.ended else "; the run is not finished"
        run.out.text(f"{report.trajectory_id}: clean ({how_far(report)}{unfinished})", style="green")
        return
    first, *more = divergence_lines(report)
    run.out.text(first, style="red")
    for line in more:
        run.out.text(line)
