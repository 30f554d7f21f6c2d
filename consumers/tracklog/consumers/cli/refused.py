"""`tracklog refused`"""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any, Final

import typer

from tracklog.consumers.cli.command import command, new_app
from tracklog.consumers.cli.replay_output import clock_time
from tracklog.consumers.cli.run import Run
from tracklog.consumers.listing import parse_time
from tracklog.consumers.refusals import Reason, Refusal, refusals
from tracklog.consumers.summary import one_line
from tracklog.consumers.wiring import check_topic, opened_log
from tracklog.infra.log.port import Log
from tracklog.producers.calls_made import check_has_call
from tracklog.producers.whereabouts import check_known, look_up
from tracklog.schemas.errors import InputError
from tracklog.schemas.inbox import INBOX_TYPES
from tracklog.schemas.ledger import LEDGER_TYPES
from tracklog.schemas.topics import Topics

WORDS_CHARS: Final = 80
KINDS: Final = (*sorted(INBOX_TYPES), *sorted(LEDGER_TYPES), "unknown")

app = new_app()


@command(app)
def refused(
    run: Run,
    trajectory_id: Annotated[str | None, typer.Argument(metavar="[ID]", help="Of this trajectory alone.")] = None,
    reason: Annotated[list[Reason] | None, typer.Option(help="With this reason; repeatable.")] = None,
    kind: Annotated[list[str] | None, typer.Option(metavar="TYPE", help="Records of this type, e.g. Outcome.")] = None,
    call: Annotated[str | None, typer.Option(metavar="CALL", help="About this call.")] = None,
    tenant: Annotated[str | None, typer.Option(help="Of this tenant.")] = None,
    since: Annotated[str | None, typer.Option(metavar="TIME", help="Appended at or after (ISO 8601, UTC).")] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", help="Appended before.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="At most so many lines, the newest.")] = 50,
) -> None:
    """List what was said to trajectories and not taken, with the reason and where it lies; all of it is counted.

    Refused by whoever runs the trajectory (a second answer, one to another question, one after the end), or never to be
    taken: for a trajectory that is not there, or under the identity of another record. It reads the log; with ID the
    partition of that trajectory alone. One call with all that was said about it: tracklog show ID --call CALL.

    \b
    Examples:
      tracklog refused --reason altered --reason other-intent
      tracklog refused trip-1 --kind Outcome --json
    """
    since_ms, until_ms = parse_time("--since", since), parse_time("--until", until)
    for name in kind or ():
        if name not in KINDS:
            raise InputError(f"--kind {name!r} is no type of record", hint=f"one of {', '.join(KINDS)}")

    def wanted(one: Refusal) -> bool:
        return (
            (not reason or one.reason in reason)
            and (not kind or one.kind in kind)
            and call in (None, one.call_id)
            and tenant in (None, one.tenant)
            and (since_ms is None or one.timestamp_ms >= since_ms)
            and (until_ms is None or one.timestamp_ms < until_ms)
        )

    with opened_log(run.settings) as log:
        check_topic(log, run.settings)
        found = list(refusals(log, run.settings.topic_names, trajectory_id))
        if trajectory_id is not None and not found:
            _check_known(log, run.settings.topic_names, trajectory_id, call)
    found = [one for one in found if wanted(one)]
    found.sort(key=lambda one: (one.timestamp_ms, one.partition, one.offset or 0))
    counts = dict(sorted(Counter(one.reason.value for one in found).items()))
    if run.as_json:
        run.out.json({"counts": counts, "refused": [_map(one) for one in found[-limit:]]})
    elif not found:
        run.out.text("nothing was refused")
    else:
        _tell(run, found[-limit:])
        run.out.text(", ".join(f"{name}: {count}" for name, count in counts.items()))


def _check_known(log: Log, topics: Topics, trajectory_id: str, call_id: str | None) -> None:
    """Raises InputError for a trajectory that nobody has said anything of, and for a call that it does not have."""
    check_known(look_up(log, topics, [trajectory_id])[trajectory_id])
    if call_id is not None:
        check_has_call(log, topics.events, trajectory_id, call_id)


def _tell(run: Run, found: list[Refusal]) -> None:
    columns = ("when (UTC)", "trajectory", "what", "from", "where", "event", "reason", "words")
    rows = [
        (
            clock_time(one.timestamp_ms)[:19],
            one.trajectory_id,
            f"{one.kind} {one.call_id}".rstrip(),
            one.source if one.seq is None else f"{one.source}/{one.seq}",
            f"{one.topic} {one.partition}:{'?' if one.offset is None else one.offset}",
            "" if one.event_seq is None else f"#{one.event_seq}",
            one.reason.value,
            one_line(one.words, WORDS_CHARS),
        )
        for one in found
    ]
    run.out.table(columns, rows, wrap=True)


def _map(one: Refusal) -> dict[str, Any]:
    return {**one._asdict(), "reason": one.reason.value}
