"""`tracklog cancel`"""

from __future__ import annotations

from typing import Annotated

import typer

from tracklog.consumers.cli.ask_many import MOST, ask_many
from tracklog.consumers.cli.command import command, new_app
from tracklog.consumers.cli.run import Run
from tracklog.consumers.tasking import chosen

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

    \b
    Examples:
      tracklog cancel trip-1 --reason 'not needed'
      tracklog cancel --where 'labels.team == "north"' --dry-run
    """
    wanted = chosen(run.settings, ids or [], where, most)
    ask_many(run, "cancel", wanted, lambda client, one: client.cancel(one, reason), dry_run=dry_run)
