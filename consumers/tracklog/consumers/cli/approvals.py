"""`tracklog approvals list|show|approve|deny`"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from tracklog.consumers.cli.command import command, new_app
from tracklog.consumers.cli.replay_output import clock_time
from tracklog.consumers.cli.run import Run
from tracklog.consumers.cli.waiting import ARGUMENTS_CHARS, Cursor, Limit, Tenant, age, tell_waiting
from tracklog.consumers.held_call import held_call
from tracklog.consumers.summary import one_line
from tracklog.consumers.tasking import text_of
from tracklog.consumers.wiring import blobs_of, check_topic, check_writable, framing_of, opened_log
from tracklog.infra.clock import SystemClock
from tracklog.processors.agenda import ASKED, Waiting
from tracklog.producers.answers import Answers
from tracklog.schemas.approvals import Approver, who_may
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


_COLUMNS = ("trajectory", "call", "tool", "age", "expires in", "may decide", "arguments")


@command(app, "list")
def list_command(run: Run, tenant: Tenant = None, limit: Limit = 50, cursor: Cursor = None) -> None:
    """List held calls that wait for somebody, the oldest first: tool, age, who may decide, hash of the arguments.

    From Redis, as new as `tracklog route` keeps it; without Redis from the log, all of which is then read.

    \b
    Examples:
      tracklog approvals list
      tracklog approvals list --tenant acme --limit 10 --json
    """
    tell_waiting(run, ASKED, "approvals", _COLUMNS, _cells, tenant=tenant, limit=limit, cursor=cursor)


@command(app)
def show(run: Run, trajectory_id: Id, call_id: CallId) -> None:
    """Show a held call as whoever decides about it must see it: arguments, rule, who may, until when, and then.

    \b
    Example:
      tracklog approvals show trip-1 call-2
    """
    with opened_log(run.settings) as log:
        check_topic(log, run.settings)
        topic, blobs = run.settings.topic_names.events, blobs_of(run.settings)
        found = held_call(log, topic, blobs, trajectory_id, call_id)
    if run.as_json:
        run.out.json(found.map())
        return
    now_us, request = SystemClock().now_us(), found.request
    run.out.text(f"{found.tool}({found.arguments})")
    lines = [
        ("held by", found.rule),
        ("reason", request.reason),
        ("asked", f"{age(found.asked_ms * 1000, now_us)} ago, of tenant {found.tenant}"),
        ("may decide", found.who),
        ("until", _until(request.expires_at, now_us)),
        *(("then", f"{who_may(one.may_approve)} for {_within(one.expires_in_s)}") for one in request.then),
        ("arguments", request.argument_hash.hex()),
        ("request", request.hash.hex()),
    ]
    for name, text in lines:
        if text:
            run.out.text(f"  {name:<10} {text}")


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
    edited call is ruled on anew by budgets and policy; arguments that its tool does not take are refused, here by its
    recorded schema, and the call goes on waiting. Who can reach the log is believed who they are; the API asks for a
    token.

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


def _cells(one: Waiting, now_us: int) -> tuple[str, ...]:
    since, left = age(one.since_ms * 1000, now_us), _left(one.expires_us, now_us)
    who = one_line(who_may(one.may_approve), 60)
    return (one.trajectory_id, one.call_id, one.tool, since, left, who, one_line(one.arguments, ARGUMENTS_CHARS))


def _left(expires_us: int | None, now_us: int) -> str:
    if expires_us is None:
        return "never"
    return "expired" if expires_us <= now_us else age(now_us, expires_us)


def _until(expires_us: int | None, now_us: int) -> str:
    if expires_us is None:
        return "for ever"
    return f"{clock_time(expires_us // 1000)[:19]} UTC ({_left(expires_us, now_us)})"


def _within(seconds: float | None) -> str:
    return "ever" if seconds is None else age(0, round(seconds * 1_000_000))


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
        settings, blobs = run.settings, blobs_of(run.settings)
        redaction = settings.redaction.before_append()
        answers = Answers(log, settings.topic_names, framing=framing_of(settings), blobs=blobs, redaction=redaction)
        answering = answers.answer(
            trajectory_id, call_id, who=who, choice=choice, reason=reason, answer=answer, arguments=arguments
        )
        asyncio.run(answering)
    if run.as_json:
        run.out.json({"trajectory_id": trajectory_id, "call_id": call_id, "choice": choice.value})
    else:
        run.out.text(f"{trajectory_id}: call {call_id}: {choice.value}, by {who.name}")
