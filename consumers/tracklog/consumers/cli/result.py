"""`tracklog result`"""

from __future__ import annotations

import asyncio
from typing import Annotated, Final

import typer

from tracklog.consumers.cli.command import command, new_app
from tracklog.consumers.cli.run import Run
from tracklog.consumers.tasking import opened_client
from tracklog.schemas.values import Ending

WAIT_S: Final = 24 * 3600.0

app = new_app()


@command(app)
def result(
    run: Run,
    trajectory_id: Annotated[str, typer.Argument(metavar="ID", help="The trajectory.")],
    wait: Annotated[bool, typer.Option("--wait", help="Wait until it has ended.")] = False,
    timeout: Annotated[float, typer.Option(metavar="SECONDS", min=0, help="With --wait: at most so long.")] = WAIT_S,
) -> None:
    """Tell how a trajectory ended: exit code 0 when it completed, 1 for another ending, 4 when it has not ended.

    \b
    Example:
      tracklog result trip-1 --wait --timeout 600
    """
    with opened_client(run.settings) as client:
        found = asyncio.run(client.result(trajectory_id, wait_s=timeout if wait else 0.0))
    if run.as_json:
        run.out.json(
            {
                "trajectory_id": found.trajectory_id,
                "ending": found.ending.value,
                "output": found.output,
                "reason": found.reason,
                "turns": found.turns,
            }
        )
    elif found.ending is Ending.COMPLETED:
        run.out.text(found.output if isinstance(found.output, str) else str(found.output))
    else:
        run.out.text(f"{found.ending.value}: {found.reason or 'no reason given'}")
    if found.ending is not Ending.COMPLETED:
        run.faulty()
