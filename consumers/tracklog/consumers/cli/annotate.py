"""`tracklog annotate`"""

from __future__ import annotations

import asyncio
import hashlib
from typing import Annotated

import typer

from tracklog.consumers.cli.command import command, new_app
from tracklog.consumers.cli.run import Run
from tracklog.consumers.tasking import text_of, user_name
from tracklog.consumers.wiring import blobs_of, check_writable, framing_of, opened_log, producer_of
from tracklog.infra.clock import SystemClock
from tracklog.infra.log.port import Log
from tracklog.producers.client import Client
from tracklog.producers.noting import is_nobodys, note
from tracklog.producers.record import TEXT
from tracklog.schemas import inbox
from tracklog.schemas.errors import InputError
from tracklog.schemas.given import checked
from tracklog.schemas.values import Body, TargetKind

app = new_app()


@command(app)
def annotate(
    run: Run,
    trajectory_id: Annotated[str, typer.Argument(metavar="ID", help="The trajectory.")],
    name: Annotated[str, typer.Option(help="What is judged, such as `score`.")],
    value: Annotated[str, typer.Option(metavar="TEXT|@FILE", help="The judgement.")],
    turn: Annotated[int | None, typer.Option(min=0, help="Of this turn alone.")] = None,
    call: Annotated[str | None, typer.Option(metavar="CALL", help="Of this call alone.")] = None,
    source: Annotated[str | None, typer.Option("--as", metavar="NAME", help="Who judges (else who calls).")] = None,
    evaluator: Annotated[str, typer.Option(metavar="VERSION", help="By which version of an evaluator.")] = "",
    client_id: Annotated[
        str | None, typer.Option("--client-id", metavar="ID", help="Taken once of each judge (else: made of the rest).")
    ] = None,
) -> None:
    """Judge a trajectory, a turn or a call of it, also after its end. Said again, it is taken once.

    Goes into the inbox; whoever runs the trajectory takes it, a worker also after its end. Into one that has ended and
    is no worker's it is taken at once.

    \b
    Examples:
      tracklog annotate trip-1 --name score --value 0.8
      tracklog annotate trip-1 --turn 3 --name comment --value @why.txt --as ada
      tracklog annotate trip-1 --call call-2 --name correct --value no --client-id review-17
    """
    if turn is not None and call is not None:
        raise InputError("a turn and a call are judged one at a time", hint="give --turn or --call, or neither")
    target = TargetKind.TURN if turn is not None else TargetKind.CALL if call is not None else TargetKind.TRAJECTORY
    said, judge = text_of(value, "the judgement"), source if source is not None else user_name()
    with checked("the judgement"):
        judgement = inbox.Annotation(
            target=target,
            turn=turn,
            call_id=call,
            name=name,
            value=Body.of(said, TEXT),
            source=judge,
            evaluator_version=evaluator,
            client_id=client_id if client_id is not None else _id_of(target, turn, call, name, said, evaluator),
        )
    with opened_log(run.settings, make_topics=True) as log:
        check_writable(log, run.settings)
        taken = asyncio.run(_annotate(run, log, trajectory_id, judgement))
    if run.as_json:
        run.out.json({"trajectory_id": trajectory_id, "client_id": judgement.client_id, "taken": taken})
    else:
        run.out.text(f"{trajectory_id}: {name}, by {judge}: {'taken' if taken else 'in the inbox'}")


async def _annotate(run: Run, log: Log, trajectory_id: str, judgement: inbox.Annotation) -> bool:
    """Whether the record has it already, and not only the inbox."""
    settings, topics = run.settings, run.settings.topic_names
    client = Client(
        log,
        topics,
        blobs=blobs_of(settings),
        by=judgement.source,
        framing=framing_of(settings),
        redaction=settings.redaction.before_append(),
    )
    state, _ = await client.annotate(trajectory_id, judgement)
    if not is_nobodys(state):
        return False
    async with producer_of(settings, log) as producer:
        await note(producer, log, topics, trajectory_id, owner=judgement.source, clock=SystemClock())
    return True


def _id_of(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode("utf-8", "replace")).hexdigest()[:16]
