"""`tracklog submit`"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from tracklog.consumers.cli.command import command, new_app
from tracklog.consumers.cli.run import Run
from tracklog.consumers.listing import parse_labels
from tracklog.consumers.tasking import opened_client, text_of
from tracklog.producers.client import Client

app = new_app()


@command(app)
def submit(
    run: Run,
    agent: Annotated[str, typer.Argument(metavar="AGENT", help="The agent's name, as its workers know it.")],
    task: Annotated[str, typer.Argument(metavar="TASK|@FILE", help="The task, or the file that has it.")],
    id: Annotated[
        str | None, typer.Option("--id", help="The trajectory's id (else a new one). Again: done once.")
    ] = None,
    label: Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="A label; repeatable.")] = None,
    tenant: Annotated[str | None, typer.Option(help="Its tenant (else the setting).")] = None,
    on_behalf_of: Annotated[
        str | None, typer.Option(metavar="NAME", help="Who asked for it; that one may not approve its held calls.")
    ] = None,
    swarm: Annotated[str | None, typer.Option(metavar="NAME", help="The swarm that it belongs to.")] = None,
) -> None:
    """Give a task to the workers. Prints the trajectory's id when the task is durable; nothing waits for a worker.

    The same task under the same id is done once; another task under an id that is taken is refused.

    \b
    Examples:
      tracklog submit traveller 'book a trip to Oslo' --id trip-1 --label team=north
      tracklog submit traveller @task.txt
    """
    text = text_of(task, "the task")
    labels = parse_labels(label or [])
    with opened_client(run.settings) as client:
        more = {"labels": labels, "tenant": tenant, "on_behalf_of": on_behalf_of, "swarm": swarm}
        made = asyncio.run(_submit(client, id, agent, text, more))
    if run.as_json:
        run.out.json({"trajectory_id": made})
    else:
        run.out.text(made)


async def _submit(client: Client, trajectory_id: str | None, agent: str, task: str, more: Mapping[str, Any]) -> str:
    """With an id it is looked whether that is free: whoever calls this is told so, and not the record alone."""
    where = None if trajectory_id is None else (await client.look_up([trajectory_id]))[trajectory_id]
    return await client.submit(agent, task, id=trajectory_id, where=where, **more)
