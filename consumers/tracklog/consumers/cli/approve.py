"""`tracklog approve`"""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from tracklog.consumers.cli.command import command, new_app
from tracklog.consumers.cli.run import Run
from tracklog.consumers.tasking import text_of
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
    edit: Annotated[
        str | None, typer.Option(metavar="JSON|@FILE", help="To be made with these arguments: all of them, an object.")
    ] = None,
) -> None:
    """Decide about a call that is held (`waiting` in `tracklog list`): approve it, deny it, answer or edit it.

    Goes into the inbox; whoever runs the trajectory takes it, and goes on. The first decision on a call counts. An
    edited call is ruled on anew by budgets and policy; arguments that its tool does not take are refused in the
    record, and the call goes on waiting.

    \b
    Examples:
      tracklog approve trip-1 call-2 --as ada
      tracklog approve trip-1 call-2 --deny 'too expensive' --as ada
      tracklog approve trip-1 call-2 --answer 'booked by hand: TL100' --as ada
      tracklog approve trip-1 call-2 --edit '{"amount": 80}' --as ada
    """
    words = ((Choice.DENY, deny), (Choice.ANSWER, answer), (Choice.EDIT, edit))
    given = [choice for choice, value in words if value is not None]
    if len(given) > 1:
        raise InputError("one decision at a time", hint="give --deny, --answer or --edit, or none to approve")
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
            arguments=None if edit is None else text_of(edit, "the arguments"),
        )
        asyncio.run(deciding)
    if run.as_json:
        run.out.json({"trajectory_id": trajectory_id, "call_id": call_id, "choice": choice.value})
    else:
        run.out.text(f"{trajectory_id}: call {call_id}: {choice.value}, by {person}")
