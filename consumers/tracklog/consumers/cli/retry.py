"""`tracklog retry`"""

from __future__ import annotations

from typing import Annotated

import typer

from tracklog.consumers.cli.ask_many import MOST, Request, ask_many
from tracklog.consumers.cli.command import command, new_app
from tracklog.consumers.cli.run import Run
from tracklog.consumers.tasking import stopped, stopped_or_failed
from tracklog.producers.whereabouts import check_can_go_back, check_stopped

app = new_app()


@command(app)
def retry(
    run: Run,
    ids: Annotated[list[str] | None, typer.Argument(metavar="ID...", help="The trajectories.")] = None,
    turn: Annotated[int | None, typer.Option(min=1, help="Go on from this turn, as another trajectory.")] = None,
    reason: Annotated[str, typer.Option(help="Why; it is recorded.")] = "",
    where: Annotated[
        str | None, typer.Option(metavar="CEL", help="All that match, as `tracklog list --where`.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say which.")] = False,
    most: Annotated[int, typer.Option("--max", min=1, max=10_000, help="At most so many.")] = MOST,
) -> None:
    """Let trajectories that were stopped (failed, stuck, poison, diverged, drift) go on from where they are.

    Those that are not there, have ended or were not stopped are named, and make the exit code 1.

    --turn N ends the run as cancelled and has another trajectory, whose id is printed, go on from turn N: also for one
    that has ended as failed or cancelled. What the run did after the turn has happened: the same call again is given
    what it gave, and another call of a tool that had an effect there is held until a person approves it.

    \b
    Examples:
      tracklog retry trip-1
      tracklog retry trip-1 --turn 3
      tracklog retry --where 'status == "failed" && agent == "traveller"' --max 50
    """
    request = Request(
        "retry",
        ask=lambda client, one, where: client.retry(one, reason, where=where),
        check=check_stopped,
        applies=stopped,
    )
    if turn is not None:
        back = turn
        request = Request(
            f"go back to turn {turn} of",
            ask=lambda client, one, where: client.go_back(one, back, reason, where=where),
            check=check_can_go_back,
            applies=stopped_or_failed,
        )
    ask_many(run, request, ids, where, most=most, dry_run=dry_run)
