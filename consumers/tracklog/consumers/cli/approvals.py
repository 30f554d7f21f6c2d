"""`tracklog approvals approve|deny`"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from tracklog.consumers.cli.command import command, new_app
from tracklog.consumers.cli.run import Run
from tracklog.consumers.tasking import text_of
from tracklog.consumers.wiring import check_writable, framing_of, opened_log
from tracklog.producers.answers import Answers
from tracklog.schemas.approvals import Approver
from tracklog.schemas.errors import InputError
from tracklog.schemas.values import Choice

app = new_app(help="Look at held calls, and decide about them.", no_args_is_help=True)

Id = Annotated[str, typer.Argument(metavar="ID", help="The trajectory.")]
CallId = Annotated[str, typer.Argument(metavar="CALL", help="The held call.")]
As = Annotated[str, typer.Option("--as", metavar="NAME", help="Who decides; it is recorded.")]
Roles = Annotated[
    list[str] | None, typer.Option("--role", metavar="NAME", help="A role that you decide in; recorded. Repeatable.")
]
Tenants = Annotated[
    list[str] | None, typer.Option("--tenant", metavar="NAME", help="A tenant that you are of; recorded. Repeatable.")
]


@command(app)
def approve(
    run: Run,
    trajectory_id: Id,
    call_id: CallId,
    person: As,
    role: Roles = None,
    tenant: Tenants = None,
    answer: Annotated[str | None, typer.Option(metavar="TEXT", help="Not to be made; this is its result.")] = None,
    edit: Annotated[
        Path | None, typer.Option(metavar="FILE", help="To be made with the arguments in it: all of them, as JSON.")
    ] = None,
) -> None:
    """Approve a held call, answer in its place, or have it made with other arguments.

    Goes into the inbox; whoever runs the trajectory takes it, and goes on. The first decision on a call counts. An
    edited call is ruled on anew by budgets and policy; arguments that its tool does not take are refused in the
    record, and the call goes on waiting. Who can reach the log is believed who they are; the API asks for a token.

    \b
    Examples:
      tracklog approvals approve trip-1 call-2 --as ada
      tracklog approvals approve trip-1 call-2 --as ada --role manager
      tracklog approvals approve trip-1 call-2 --answer 'booked by hand: TL100' --as ada
      tracklog approvals approve trip-1 call-2 --edit arguments.json --as ada
    """
    if answer is not None and edit is not None:
        raise InputError("one decision at a time", hint="give --answer or --edit, or none to approve")
    choice = Choice.ANSWER if answer is not None else Choice.EDIT if edit is not None else Choice.APPROVE
    arguments = None if edit is None else text_of(f"@{edit}", "the arguments")
    who = _who(person, role, tenant)
    _decide(run, trajectory_id, call_id, who, choice, answer=answer, arguments=arguments)


@command(app)
def deny(
    run: Run,
    trajectory_id: Id,
    call_id: CallId,
    person: As,
    role: Roles = None,
    tenant: Tenants = None,
    feedback: Annotated[str, typer.Option(metavar="TEXT", help="What the model is told.")] = "",
) -> None:
    """Have a held call not made. The model is told so, with what you say to it.

    \b
    Examples:
      tracklog approvals deny trip-1 call-2 --as ada
      tracklog approvals deny trip-1 call-2 --feedback 'too expensive: find one below 200' --as ada
    """
    _decide(run, trajectory_id, call_id, _who(person, role, tenant), Choice.DENY, reason=feedback)


def _who(person: str, role: list[str] | None, tenant: list[str] | None) -> Approver:
    return Approver(person, frozenset(role or ()), frozenset(tenant or ()))


def _decide(
    run: Run,
    trajectory_id: str,
    call_id: str,
    who: Approver,
    choice: Choice,
    *,
    reason: str = "",
    answer: str | None = None,
    arguments: str | None = None,
) -> None:
    with opened_log(run.settings) as log:
        check_writable(log, run.settings)
        answers = Answers(log, run.settings.topic_names, framing=framing_of(run.settings))
        answering = answers.answer(
            trajectory_id, call_id, who=who, choice=choice, reason=reason, answer=answer, arguments=arguments
        )
        asyncio.run(answering)
    if run.as_json:
        run.out.json({"trajectory_id": trajectory_id, "call_id": call_id, "choice": choice.value})
    else:
        run.out.text(f"{trajectory_id}: call {call_id}: {choice.value}, by {who.name}")
