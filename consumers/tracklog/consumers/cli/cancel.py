"""`tracklog cancel`"""

from __future__ import annotations

from typing import Annotated

import typer

from tracklog.consumers.cli.ask_many import MOST, Request, ask_many
from tracklog.consumers.cli.command import command, new_app
from tracklog.consumers.cli.run import Run
from tracklog.consumers.tasking import of_workers
from tracklog.producers.whereabouts import check_open

app = new_app()


@command(app)
def cancel(
    run: Run,
    ids: Annotated[list[str] | None, typer.Argument(metavar="ID...", help="The trajectories.")] = None,
    reason: Annotated[str, typer.Option(help="Why; it is recorded.")] = "",
    where: Annotated[
        str | None, typer.Option(metavar="CEL", help="All that match, as `tracklog list --where`.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say which.")] = False,
    most: Annotated[int, typer.Option("--max", min=1, max=10_000, help="At most so many.")] = MOST,
) -> None:
    """Ask that trajectories of workers end as cancelled: at their next step, after what is under way was settled.

    Those that are not there or have ended are named, and make the exit code 1.

    \b
    Examples:
      tracklog cancel trip-1 --reason 'not needed'
      tracklog cancel --where 'labels.team == "north"' --dry-run
    """
    request = Request(
        "cancel",
        ask=lambda client, one, where: client.cancel(one, reason, where=where),
        check=check_open,
        applies=of_workers,
    )
    ask_many(run, request, ids, where, most=most, dry_run=dry_run)
