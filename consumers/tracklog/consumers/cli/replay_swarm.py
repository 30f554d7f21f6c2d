"""`tracklog replay swarm`: all agents of a swarm over their records, in one order."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer

from tracklog.consumers.cli.replay_runs import tell_report
from tracklog.consumers.cli.run import Run
from tracklog.consumers.swarm.members import histories_of
from tracklog.consumers.swarm.replaying import LIMIT_S, SwarmReport, replay_swarm
from tracklog.consumers.trajectory_replay import agents_by_name, report_map
from tracklog.consumers.wiring import blobs_of, check_topic, opened_log
from tracklog.producers.cursor import describe
from tracklog.producers.lineage import read_inherited
from tracklog.schemas.codec import Event


def swarm(
    run: Run,
    trajectory_id: Annotated[str, typer.Argument(metavar="ID", help="The swarm, or any run of it.")],
    agent: Annotated[
        list[str] | None,
        typer.Option(metavar="MODULE:AGENT", help="An agent, repeatable (else what each record says of its own)."),
    ] = None,
    step: Annotated[bool, typer.Option("--step", help="Tell each event; at a terminal, wait for Enter.")] = False,
    limit_s: Annotated[float, typer.Option("--limit-s", min=0.1, help="The longest that it may take.")] = LIMIT_S,
) -> None:
    """Run all agents of a swarm over their records, strictly in the one total order: by Lamport time, then trajectory.

    Each is replayed as `replay trajectory` does; nobody is given an event before those that come before it in other
    records. Names the first divergence of all by agent and turn. Also looked at: that each event comes after its
    causes, and that what was heard is what was sent. Exit code 1 when something is not so.

    \b
    Examples:
      tracklog replay swarm plan-1 --agent my_agents:planner --agent my_agents:writer
      tracklog replay swarm plan-1 --agent my_agents:planner --agent my_agents:writer --step
    """
    agents = agents_by_name(agent or ())
    order = list[dict[str, Any]]()
    with opened_log(run.settings) as log:
        check_topic(log, run.settings)
        topic = run.settings.topic_names.events
        name, found = histories_of(log, topic, trajectory_id)
        histories = {one: [event for event, _ in accepted] for one, (_, accepted) in found.items()}
        inherited = {one: read_inherited(log, topic, events) for one, events in histories.items()}
    stops = step and not run.as_json and sys.stdin.isatty()
    passed = _stepping(run, sum(map(len, histories.values())), order, stops=stops) if step else _no_step
    limit = None if stops else limit_s
    redaction = run.settings.redaction.before_append()
    blobs = blobs_of(run.settings)
    report = asyncio.run(replay_swarm(histories, inherited, agents, blobs, passed, limit, redaction))
    if run.as_json:
        run.out.json({"swarm": name, **_map(report), **({"order": order} if step else {})})
    else:
        tell(run, name, report)
    if not report.clean:
        run.faulty()


def tell(run: Run, name: str, report: SwarmReport) -> None:
    for one in report.not_run:
        run.out.text(f"{one}: not run: refused", style="dim")
    for misfit in report.misfits:
        at = f"turn {misfit.turn}, event {misfit.seq}"
        run.out.text(f"{misfit.trajectory_id}: {at}: {misfit.what}", style="red")
    if report.first is not None:
        run.out.text(f"{name}: the first that diverges is {report.first}", style="red")
        tell_report(run, report.reports[report.first])
    for one, own in sorted(report.reports.items()):
        if one != report.first:
            tell_report(run, own)
    if report.clean:
        run.out.text(f"{name}: clean ({len(report.reports)} runs, {report.events} events in one order)", style="green")


def _stepping(run: Run, total: int, order: list[dict[str, Any]], *, stops: bool) -> Callable[[Event], None]:
    def passed(event: Event) -> None:
        envelope = event.envelope
        what = event.name if event.body is None else describe(event.body)
        order.append(
            {
                "trajectory_id": envelope.trajectory_id,
                "seq": envelope.seq,
                "lamport": envelope.lamport,
                "turn": envelope.turn,
                "type": event.name,
            }
        )
        told = f"{event.name}: {what}" if what != event.name else what
        run.out.text(f"{len(order)}/{total} {envelope.trajectory_id} turn {envelope.turn} #{envelope.seq} {told}")
        if stops:
            run.out.flush()
            sys.stdin.readline()

    return passed


def _no_step(event: Event) -> None:
    """Nobody asked to be told."""


def _map(report: SwarmReport) -> dict[str, Any]:
    return {
        "clean": report.clean,
        "events": report.events,
        "first": None if report.first is None else report_map(report.reports[report.first]),
        "runs": [report_map(one) for _, one in sorted(report.reports.items())],
        "not_run": list(report.not_run),
        "misfits": [one._asdict() for one in report.misfits],
    }
