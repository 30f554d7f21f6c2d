"""`tracklog approve`"""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from tracklog.consumers.cli.command import command, new_app
from tracklog.consumers.cli.run import Run
from tracklog.consumers.wiring import check_writable, framing_of, opened_log
from tracklog.producers.answers import Answers
from tracklog.schemas.errors import InputError
from tracklog.schemas.values import Choice

app = new_app()


@command(app)
def approve(
    run: Run,
    trajectory_id: Annotated[str, typer.Argument(metavar="ID", help="The trajectory.")],
    call_id: Annotated[str, typer.Argument(metavar="CALL", help="The held call.")],
    person: Annotated[str, typer.Option("--as", metavar="NAME", help="Who decides; it is recorded.")],
    deny: Annotated[str | None, typer.Option(metavar="TEXT", help="Not to be made; the model is told why.")] = None,
    answer: Annotated[str | None, typer.Option(metavar="TEXT", help="Not to be made; this is its result.")] = None,
) -> None:
    """Decide about a call that is held (`waiting` in `tracklog list`): approve it, deny it or answer.

    Goes into the inbox; whoever runs the trajectory takes it, and goes on. The first decision on a call counts.

    \b
    Examples:
      tracklog approve trip-1 call-2 --as ada
      tracklog approve trip-1 call-2 --deny 'too expensive' --as ada
      tracklog approve trip-1 call-2 --answer 'booked by hand: TL100' --as ada
    """
    given = [choice for choice, value in ((Choice.DENY, deny), (Choice.ANSWER, answer)) if value is not None]
    if len(given) > 1:
        raise InputError("one decision at a time", hint="give --deny or --answer, or none to approve")
    choice = given[0] if given else Choice.APPROVE
    with opened_log(run.settings) as log:
        check_writable(log, run.settings)
        answers = Answers(log, run.settings.topic_names, framing=framing_of(run.settings))
        deciding = answers.decide(
            trajectory_id,
            call_id,
            person=person,
            choice=choice,
            reason=deny or "",
            answer=answer,
        )
        asyncio.run(deciding)
    if run.as_json:
        run.out.json({"trajectory_id": trajectory_id, "call_id": call_id, "choice": choice.value})
    else:
        run.out.text(f"{trajectory_id}: call {call_id}: {choice.value}, by {person}")
