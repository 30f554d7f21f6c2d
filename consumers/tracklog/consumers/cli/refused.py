"""`tracklog refused`"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Annotated, Any, Final

import typer

from tracklog.consumers.cli.command import command, new_app
from tracklog.consumers.cli.replay_output import clock_time
from tracklog.consumers.cli.run import Run
from tracklog.consumers.cli.waiting import Cursor
from tracklog.consumers.listing import parse_time
from tracklog.consumers.read import Answer, Reader
from tracklog.consumers.refusals import Reason, Refusal, altered, refusals
from tracklog.consumers.refused_view import OF_OWNERS, RefusedPage, refused_page
from tracklog.consumers.summary import one_line
from tracklog.consumers.wiring import check_topic, lag_of, opened_log, opened_views, refused_of
from tracklog.infra.log.port import Log
from tracklog.producers.calls_made import check_has_call
from tracklog.producers.whereabouts import check_known, look_up
from tracklog.schemas.errors import InputError, NotFolded, StackError, StoreUnavailable
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
    cursor: Cursor = None,
    from_log: Annotated[
        bool, typer.Option("--from-log", help="Read the log: also what nobody will ever take. Counts all of it.")
    ] = False,
) -> None:
    """List what was said to trajectories and not taken, with the reason and where it lies.

    What owners refused (a second answer, one to another question, one after the end) is read from Redis, newest first,
    the last thirty days of it; and from the inboxes what has the identity of an earlier record and says something else
    (a second text under one client id), as far as both are among the newest 10,000 of a partition. What else nobody
    will ever take (for a trajectory that is not there) is in the log alone: --from-log reads all of it; with ID, with
    --call and with a reason of that kind the log is read too, with ID one partition of it. One call with all that was
    said about it: tracklog show ID --call CALL.

    \b
    Examples:
      tracklog refused --limit 20
      tracklog refused --from-log --reason altered --reason other-intent
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

    of_log = from_log or trajectory_id is not None or call is not None or not OF_OWNERS.issuperset(reason or ())
    if of_log and cursor is not None:
        raise InputError("what is read from the log is counted whole: it has no pages", hint="leave out --cursor")
    if not of_log:
        try:
            page, lag = _page(run, wanted, tenant, since_ms, cursor, limit, with_altered=not reason)
        except (StoreUnavailable, NotFolded, StackError) as error:
            if cursor is not None:
                raise
            run.out.warning(f"the whole log is read, since Redis does not have it: {error.message}")
        else:
            _tell_page(run, page, lag)
            return
    _tell_all(run, _in_log(run, trajectory_id, call, wanted), limit)


def _tell_all(run: Run, found: list[Refusal], limit: int) -> None:
    counts = dict(sorted(Counter(one.reason.value for one in found).items()))
    if run.as_json:
        run.out.json({"counts": counts, "refused": [_map(one) for one in found[-limit:]], "source": "log"})
    elif not found:
        run.out.text("nothing was refused")
    else:
        _tell(run, found[-limit:])
        run.out.text(", ".join(f"{name}: {count}" for name, count in counts.items()))


def _page(
    run: Run,
    wanted: Callable[[Refusal], bool],
    tenant: str | None,
    since_ms: int | None,
    cursor: str | None,
    limit: int,
    *,
    with_altered: bool,
) -> tuple[Answer[RefusedPage], int]:
    """(what owners refused, and what has another record's identity; how many records that is behind)."""
    with opened_views(run.settings, refused_of) as (log, client):
        reader = Reader(client, prefix=run.settings.prefix)
        asked = refused_page(reader, wanted, tenant=tenant, since_ms=since_ms, cursor=cursor, limit=limit)
        page = asyncio.run(asked)
        topics = run.settings.topic_names
        if with_altered:
            page = Answer(page.value.joined(filter(wanted, altered(log, topics))), page.as_of)
        return page, lag_of(log, topics.events, page.as_of.positions)


def _tell_page(run: Run, page: Answer[RefusedPage], lag: int) -> None:
    rows, following = page.value.rows, page.value.next
    if lag:
        run.out.warning(f"the list is {lag} records behind the log: is `tracklog process` running?")
    if run.as_json:
        said = {"refused": [_map(one) for one in rows], "next": following, "source": page.as_of.source}
        run.out.json({**said, "as_of": page.as_of.as_map(), "lag": lag})
        return
    if rows:
        _tell(run, rows)
    else:
        run.out.text("owners refused nothing")
    if following is not None:
        run.out.text(f"more: --cursor '{following}'", style="dim")
    run.out.note("what else nobody will ever take is in the log alone: --from-log")


def _in_log(run: Run, trajectory_id: str | None, call: str | None, wanted: Callable[[Refusal], bool]) -> list[Refusal]:
    """All of it, the oldest first."""
    with opened_log(run.settings) as log:
        check_topic(log, run.settings)
        found = list(refusals(log, run.settings.topic_names, trajectory_id))
        if trajectory_id is not None and not found:
            _check_known(log, run.settings.topic_names, trajectory_id, call)
    return sorted(filter(wanted, found), key=lambda one: (one.timestamp_ms, one.partition, one.offset or 0))


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
