"""`tracklog settle`"""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from tracklog.consumers.cli.command import command, new_app
from tracklog.consumers.cli.run import Run
from tracklog.consumers.wiring import check_writable, framing_of, opened_log
from tracklog.producers.answers import Answers

app = new_app()


@command(app)
def settle(
    run: Run,
    trajectory_id: Annotated[str, typer.Argument(metavar="ID", help="The trajectory.")],
    call_id: Annotated[str, typer.Argument(metavar="CALL", help="The call that may have happened.")],
    happened: Annotated[bool, typer.Option("--happened/--absent", help="Whether it happened.")],
    output: Annotated[str, typer.Option(metavar="TEXT", help="What the model is given as the call's result.")],
    person: Annotated[str, typer.Option("--as", metavar="NAME", help="Who says so; it is recorded.")],
) -> None:
    """Say whether a call happened that nobody but a person can find out about (`in doubt` in `tracklog list`).

    Goes into the inbox; whoever runs the trajectory takes it, and goes on. The first word on a call counts.

    \b
    Examples:
      tracklog settle trip-1 call-2 --happened --output 'booked TL100' --as ada
      tracklog settle trip-1 call-2 --absent --output 'it was not booked' --as ada
    """
    with opened_log(run.settings) as log:
        check_writable(log, run.settings)
        answers = Answers(log, run.settings.topic_names, framing=framing_of(run.settings))
        asyncio.run(answers.settle(trajectory_id, call_id, person=person, happened=happened, output=output))
    said = {"trajectory_id": trajectory_id, "call_id": call_id, "happened": happened}
    if run.as_json:
        run.out.json(said)
    else:
        run.out.text(f"{trajectory_id}: call {call_id} {'happened' if happened else 'did not happen'}, says {person}")
