"""`tracklog escalations list|settle`"""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from tracklog.consumers.cli.command import command, new_app
from tracklog.consumers.cli.run import Run
from tracklog.consumers.cli.waiting import ARGUMENTS_CHARS, Cursor, Limit, Tenant, age, tell_waiting
from tracklog.consumers.summary import one_line
from tracklog.consumers.wiring import check_writable, framing_of, opened_log
from tracklog.processors.agenda import DOUBTED, Waiting
from tracklog.producers.answers import Answers
from tracklog.schemas.errors import InputError

app = new_app(help="Look at calls that may have happened, and say what became of them.", no_args_is_help=True)

_WORDS = ("it happened", "it did not happen", "do it again")
_NOTHING = "it is not said what became of the call, or what is to"
_COLUMNS = ("trajectory", "call", "tool", "age", "arguments", "what was tried")


@command(app, "list")
def list_command(run: Run, tenant: Tenant = None, limit: Limit = 50, cursor: Cursor = None) -> None:
    """List calls that may have happened and that nobody but a person can find out about, the oldest first.

    From Redis, as new as `tracklog route` keeps it; without Redis from the log, all of which is then read.

    \b
    Examples:
      tracklog escalations list
      tracklog escalations list --tenant acme --json
    """
    tell_waiting(run, DOUBTED, "escalations", _COLUMNS, _cells, tenant=tenant, limit=limit, cursor=cursor)


@command(app)
def settle(
    run: Run,
    trajectory_id: Annotated[str, typer.Argument(metavar="ID", help="The trajectory.")],
    call_id: Annotated[str, typer.Argument(metavar="CALL", help="The call that may have happened.")],
    person: Annotated[str, typer.Option("--as", metavar="NAME", help="Who says so; it is recorded.")],
    reason: Annotated[str, typer.Option(metavar="TEXT", help="How you know; it is recorded.")],
    happened: Annotated[bool, typer.Option("--happened", help="It happened.")] = False,
    did_not: Annotated[bool, typer.Option("--did-not-happen", help="It did not, and never will.")] = False,
    retry: Annotated[bool, typer.Option("--retry", help="Do it again, whether it happened or not.")] = False,
    output: Annotated[
        str | None, typer.Option(metavar="TEXT", help="What the model is given as the call's result (else the reason).")
    ] = None,
) -> None:
    """Say what became of a call that nobody but a person can find out about.

    Goes into the inbox; whoever runs the trajectory takes it, and goes on. The first word on a call counts. With
    --retry the call is made once more, with the same key: if it did happen, it happens twice, and you said so.

    \b
    Examples:
      tracklog escalations settle trip-1 call-2 --happened --output 'booked TL100' --reason 'in their list' --as ada
      tracklog escalations settle trip-1 call-2 --did-not-happen --reason 'their list has no booking' --as ada
      tracklog escalations settle trip-1 call-2 --retry --reason 'nothing is there, and we need it' --as ada
    """
    given = [word for word, said in zip(_WORDS, (happened, did_not, retry), strict=True) if said]
    if len(given) != 1:
        said = f"more than one thing is said of the call: {', '.join(given)}" if given else _NOTHING
        raise InputError(said, hint="give one of --happened, --did-not-happen and --retry")
    if retry and output is not None:
        raise InputError("an output for a call that is to be made again", hint="leave --output out")
    with opened_log(run.settings) as log:
        check_writable(log, run.settings)
        redaction = run.settings.redaction.before_append()
        answers = Answers(log, run.settings.topic_names, framing=framing_of(run.settings), redaction=redaction)
        about, told = (trajectory_id, call_id), reason if output is None else output
        if retry:
            asyncio.run(answers.retry(*about, person=person, reason=reason))
        else:
            asyncio.run(answers.settle(*about, person=person, happened=happened, output=told, reason=reason))
    if run.as_json:
        run.out.json({"trajectory_id": trajectory_id, "call_id": call_id, "said": given[0], "by": person})
    else:
        run.out.text(f"{trajectory_id}: call {call_id}: {given[0]}, says {person}")


def _cells(one: Waiting, now_us: int) -> tuple[str, ...]:
    since = age(one.since_ms * 1000, now_us)
    return (
        one.trajectory_id,
        one.call_id,
        one.tool,
        since,
        one_line(one.arguments, ARGUMENTS_CHARS),
        one_line(one.reason, 60),
    )
