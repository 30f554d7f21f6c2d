"""`tracklog send`"""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from tracklog.consumers.cli.ask_many import tell_asked
from tracklog.consumers.cli.command import command, new_app
from tracklog.consumers.cli.run import Run
from tracklog.consumers.tasking import opened_client

app = new_app()


@command(app)
def send(
    run: Run,
    trajectory_id: Annotated[str, typer.Argument(metavar="ID", help="The trajectory.")],
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What is said to it.")],
    client_id: Annotated[
        str | None,
        typer.Option("--client-id", metavar="ID", help="Of your own: received once, however often it is sent."),
    ] = None,
) -> None:
    """Say something to a trajectory. It is durable when this returns, and received when the agent asks for it.

    \b
    Example:
      tracklog send trip-1 'monday, please'
    """
    with opened_client(run.settings) as client:
        asyncio.run(client.send(trajectory_id, text, client_id=client_id))
    tell_asked(run, "sent to", [trajectory_id], {})
