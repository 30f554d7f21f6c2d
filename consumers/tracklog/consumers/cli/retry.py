"""`tracklog retry`"""

from __future__ import annotations

from typing import Annotated

import typer

from tracklog.consumers.cli.ask_many import MOST, Request, ask_many
from tracklog.consumers.cli.command import command, new_app
from tracklog.consumers.cli.run import Run
from tracklog.consumers.tasking import stopped
from tracklog.producers.whereabouts import check_stopped

app = new_app()


@command(app)
def retry(
    run: Run,
    ids: Annotated[list[str] | None, typer.Argument(metavar="ID...", help="The trajectories.")] = None,
    reason: Annotated[str, typer.Option(help="Why; it is recorded.")] = "",
    where: Annotated[
        str | None, typer.Option(metavar="CEL", help="All that match, as `tracklog list --where`.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say which.")] = False,
    most: Annotated[int, typer.Option("--max", min=1, max=10_000, help="At most so many.")] = MOST,
) -> None:
    """Let trajectories that were stopped (failed, stuck, poison, diverged, drift) go on from where they are.

    Those that are not there, have ended or were not stopped are named, and make the exit code 1.

    \b
    Examples:
      tracklog retry trip-1
      tracklog retry --where 'status == "failed" && agent == "traveller"' --max 50
    """
    request = Request(
        "retry",
        ask=lambda client, one, where: client.retry(one, reason, where=where),
        check=check_stopped,
        applies=stopped,
    )
    ask_many(run, request, ids, where, most=most, dry_run=dry_run)
