"""`tracklog fork`"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from tracklog.consumers.cli.ask_many import chosen_ids
from tracklog.consumers.cli.command import DRIFT_HELP, command, new_app
from tracklog.consumers.cli.run import Run
from tracklog.consumers.forking import CHANGES, Asked, Forked, changes_of, check_point, fork_all, would_fork
from tracklog.consumers.summary import one_line
from tracklog.consumers.wiring import check_writable, opened_log
from tracklog.producers.agents import load_agent
from tracklog.producers.versions import Drift
from tracklog.schemas.errors import InputError

app = new_app()


@command(app)
def fork(
    run: Run,
    trajectory_id: Annotated[str | None, typer.Argument(metavar="[ID]", help="The trajectory to fork.")] = None,
    turn: Annotated[int, typer.Option(min=1, help="The first turn that the fork does itself.")] = 1,
    agent: Annotated[str, typer.Option(metavar="MODULE:AGENT", help="The agent to run.")] = "",
    allow: Annotated[
        list[str] | None, typer.Option(metavar="TOOL", help="A tool that really runs; repeatable.")
    ] = None,
    drift: Annotated[Drift | None, typer.Option(help=DRIFT_HELP)] = None,
    new_id: Annotated[str | None, typer.Option("--id", metavar="NEW", help="The id of the fork.")] = None,
    where: Annotated[
        str | None, typer.Option(metavar="CEL", help="Forks all trajectories that this fits, as in `list`.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only says what would be forked, or could not.")] = False,
    most: Annotated[int, typer.Option("--max", min=1, max=1000, help="With --where: at most so many.")] = 20,
) -> None:
    """Run an agent again from a turn of a recorded run, with one thing changed, in a trajectory of its own.

    --set model=NAME, prompt=FILE, policy=FILE and reply=FILE say what is changed; a reply is what the model is taken
    to have said at that turn, a policy is recorded with the fork. Tools are sandboxed: a call that the origin made too
    is given what that one gave, any other is denied. The same call again goes on with the same fork. Exit code 1 when
    one did not come to its end, 2 when the ID given is not there or has no such turn.

    \b
    Examples:
      tracklog fork airline-17-3 --turn 4 --agent my_agents:airline --set prompt=brief.txt
      tracklog fork --where 'status == "failed"' --turn 2 --agent my_agents:airline --set model=gpt-5 --dry-run
    """
    if (trajectory_id is None) == (where is None):
        raise InputError("fork takes an ID or --where", hint="tracklog fork ID --turn N --agent MODULE:AGENT")
    if where is not None and new_id is not None:
        raise InputError("--id names one fork, --where may find several", hint="leave --id out")
    if not agent:
        raise InputError("nobody to run is named", hint="--agent MODULE:AGENT")
    loaded = load_agent(agent)
    given = {name: run.taken(name) for name in CHANGES}
    words, changes = changes_of({name: value for name, value in given.items() if value is not None}, loaded)
    asked = Asked(turn, words, changes, tuple(sorted(set(allow or []))), drift)
    origins = chosen_ids(run, [trajectory_id] if trajectory_id is not None else [], where, most, lambda _: True)
    with opened_log(run.settings) as log:
        if trajectory_id is not None:
            check_point(log, run.settings, trajectory_id, turn)  # of many, each is named with what keeps it
        if dry_run:
            tell(run, would_fork(log, run.settings, loaded, origins, asked, new_id=new_id), dry_run=True)
            return
        check_writable(log, run.settings)
        tell(run, fork_all(log, run.settings, loaded, origins, asked, new_id=new_id))


def tell(run: Run, forks: list[Forked], *, dry_run: bool = False) -> None:
    if run.as_json:
        run.out.json({"dry_run": dry_run, "forks": [_map(one) for one in forks]})
    elif not forks:
        run.out.text("no trajectory matches")
    else:
        for one in forks:
            run.out.text(f"{one.origin} -> {one.trajectory_id}{'' if dry_run else ': ' + one_line(one.result, 80)}")
    for one in forks:
        if one.error:
            run.out.warning(f"{one.trajectory_id}: {one.error}")
            run.faulty()


def _map(one: Forked) -> dict[str, Any]:
    return one._asdict()
