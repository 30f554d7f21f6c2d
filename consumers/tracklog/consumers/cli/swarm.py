"""`tracklog swarm`"""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from tracklog.consumers.cli.command import command, new_app
from tracklog.consumers.cli.list_runs import tell_lag
from tracklog.consumers.cli.replay_output import clock_time
from tracklog.consumers.cli.run import Run
from tracklog.consumers.read import Reader
from tracklog.consumers.swarm.members import members_in_redis, swarm_in_log
from tracklog.consumers.swarm.showing import swarm_map, verdicts, wait_words
from tracklog.consumers.swarm.waits import Swarm, Wait, swarm_of
from tracklog.consumers.wiring import check_topic, lag_of, opened_log, opened_views
from tracklog.schemas.errors import InputError, StackError, StoreError

app = new_app()


@command(app)
def swarm(
    run: Run,
    trajectory_id: Annotated[str, typer.Argument(metavar="ID", help="The swarm, or any run of it.")],
    from_log: Annotated[bool, typer.Option("--from-log", help="Read the log, also where Redis is there.")] = False,
) -> None:
    """Show the runs of a swarm, and who waits for whom: for a message, a child run, a person, a timer.

    Names a deadlock (they wait for each other) and an orphan (it waits for one that has ended): nobody of the swarm can
    end those. What is on the way counts, also what lies in an inbox; such a verdict is always the log's.

    Reads Redis where that is there, else the whole log. Exit code 1 for a deadlock or an orphan.

    \b
    Examples:
      tracklog swarm plan-1
      tracklog swarm plan-1 --from-log --json
    """
    found = _found(run, trajectory_id, from_log=from_log)
    if run.as_json:
        run.out.json(swarm_map(found))
    else:
        tell(run, found)
    if not found.sound:
        run.faulty()


def tell(run: Run, found: Swarm) -> None:
    rows = [
        (one, "" if state.task is None else state.task.agent, state.summary, "; ".join(map(_words, found.waits[one])))
        for one, state in found.members.items()
    ]
    run.out.table(("trajectory", "agent", "status", "waits for"), rows)
    for line in verdicts(found):
        run.out.text(line, style="red")


def _words(wait: Wait) -> str:
    return wait_words(wait) + ("" if wait.due_us is None else f", until {clock_time(wait.due_us // 1000)[:19]}")


def _found(run: Run, trajectory_id: str, *, from_log: bool) -> Swarm:
    settings = run.settings
    if not from_log:
        try:
            with opened_views(settings) as (log, client):
                reader = Reader(client, prefix=settings.prefix)
                name, states, as_of = asyncio.run(members_in_redis(reader, trajectory_id))
                lag = lag_of(log, settings.topic_names.events, as_of.positions)
        except InputError:
            run.out.warning("the whole log is read, since Redis has nothing of it")
        except (StoreError, StackError) as error:
            run.out.warning(f"the whole log is read, since Redis is not there: {error.message}")
        else:
            seen = swarm_of(name, states)
            if seen.sound:
                tell_lag(run, lag)
                return seen
    with opened_log(settings) as log:
        check_topic(log, settings)
        return swarm_in_log(log, settings.topic_names, trajectory_id)
