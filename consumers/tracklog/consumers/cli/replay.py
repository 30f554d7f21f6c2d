"""`tracklog replay events` and `tracklog replay trajectory`"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from itertools import chain, islice
from pathlib import Path
from typing import Annotated

import typer

from tracklog.consumers.cli.command import command, new_app
from tracklog.consumers.cli.replay_output import Format, Sink, opened_sink, tell_states
from tracklog.consumers.cli.replay_runs import trajectory
from tracklog.consumers.cli.replay_suite import suite
from tracklog.consumers.cli.replay_swarm import swarm
from tracklog.consumers.cli.run import Run
from tracklog.consumers.copying import TopicCopy, check_target
from tracklog.consumers.event_json import SAMPLE
from tracklog.consumers.replay import (
    Filter,
    Range,
    Replayed,
    begun_under,
    follow,
    in_one_order,
    replay,
    resolve,
    states_at_end,
)
from tracklog.consumers.swarm.members import histories_of
from tracklog.consumers.where import Where
from tracklog.consumers.wiring import check_topic, opened_log
from tracklog.infra.clock import SystemClock
from tracklog.infra.log.port import Log
from tracklog.infra.log.trimmed import COLD_HINT, check_beginning, kept_in_words
from tracklog.schemas.errors import InputError

WhereOption = Annotated[
    str | None, typer.Option(metavar="CEL", help="A condition on the event, e.g. body.tool == 'book'.")
]
SwarmOption = Annotated[
    str | None, typer.Option("--swarm", metavar="ID", help="The runs of a swarm, in its one order over partitions.")
]

app = new_app(help="Read ranges of the log again, and run agents over their records.", no_args_is_help=True)


@app.callback()
def group() -> None:
    """Read ranges of the log again, and run agents over their records."""


@command(app)
def events(
    run: Run,
    partition: Annotated[int | None, typer.Option(help="One partition (else all).")] = None,
    frm: Annotated[
        str | None,
        typer.Option("--from", metavar="BOUND", help="An offset, a time, -N (the last N), beginning or end."),
    ] = None,
    to: Annotated[str | None, typer.Option("--to", metavar="BOUND", help="The same; exclusive.")] = None,
    trajectory: Annotated[str | None, typer.Option(metavar="ID", help="One trajectory; needs no partition.")] = None,
    swarm_id: SwarmOption = None,
    where: WhereOption = None,
    follow_on: Annotated[bool, typer.Option("--follow", help="Then go on with what is appended.")] = False,
    max_events: Annotated[int | None, typer.Option("--max", min=0, help="Leave after so many events.")] = None,
    for_s: Annotated[
        float | None, typer.Option("--for", min=0, help="With --follow: leave after so many seconds.")
    ] = None,
    form: Annotated[Format | None, typer.Option("--format", help="How to print (else pretty).")] = None,
    folded: Annotated[bool, typer.Option("--fold", help="Print the states at the end of the range instead.")] = False,
    to_file: Annotated[Path | None, typer.Option(metavar="PATH", help="Write to a file (else jsonl).")] = None,
    to_topic: Annotated[
        str | None, typer.Option(metavar="NAME", help="Append to another topic of this log, as they are.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file; append to any topic.")] = False,
) -> None:
    """Read events of a range again, without a group and without commits. Without a range: everything, to the end as
    it is now.

    With --json one object a line. Records that are no events are shown as such. What was asked for and is no longer
    kept is reported on standard error. `avro` is a file of records that any Avro tool reads; `raw` is each value
    behind its length, 4 bytes big-endian.

    \b
    Examples:
      tracklog replay events --partition 3 --from 1200 --to 1900
      tracklog replay events --trajectory airline-17-3 --where 'type == "ToolIntent"'
      tracklog replay events --from 2026-03-01T12:00:00Z --format jsonl --to-file day.jsonl
    """
    if sum((folded, to_file is not None, to_topic is not None)) > 1:
        raise InputError("--fold, --to-file and --to-topic exclude each other")
    _check_following(follow_on, to, for_s, folded=folded)
    _check_swarm(swarm_id, alone=trajectory is None and not follow_on and not folded)
    wanted = Filter(trajectory, None if where is None else Where(where, SAMPLE))
    topic = run.settings.topic_names.events
    if to_topic is not None:
        check_target(run.settings.topic_names, topic, to_topic, force=force)
    with opened_log(run.settings) as log:
        check_topic(log, run.settings)
        ranges = resolve(log, topic, partition=partition, trajectory_id=trajectory, frm=frm, to=to)
        trimmed = _tell_ranges(run, log, ranges, frm, follow_on=follow_on)
        if folded:
            _tell_nothing(run, tell_states(run, states_at_end(log, topic, ranges, wanted)), ranges, wanted, trimmed)
            return
        with ExitStack() as stack:
            copy = None if to_topic is None else TopicCopy(log, to_topic, force=force)
            sink = stack.enter_context(opened_sink(run, form, to_file, copy, force=force, at_once=follow_on))
            found = _in_order(log, topic, swarm_id, replay(log, topic, ranges, wanted))
            if follow_on:
                found = chain(found, follow(log, topic, ranges, wanted, clock=SystemClock(), for_s=for_s))
            passed = _pass_on(run, found, sink, follow_on=follow_on, max_events=max_events)
            _tell_nothing(run, passed if max_events != 0 else None, ranges, wanted, trimmed)


command(app)(trajectory)
command(app)(suite)
command(app)(swarm)


def _check_following(follow_on: bool, to: str | None, for_s: float | None, *, folded: bool) -> None:
    if for_s is not None and not follow_on:
        raise InputError("--for bounds --follow", hint="say --follow too")
    if follow_on and folded:
        raise InputError("--fold and --follow exclude each other", hint="a fold is of a range that ends")
    if follow_on and to is not None:
        raise InputError("--to and --follow exclude each other", hint="--max and --for bound what is followed")


def _in_order(log: Log, topic: str, swarm_id: str | None, found: Iterable[Replayed]) -> Iterable[Replayed]:
    return found if swarm_id is None else in_one_order(found, histories_of(log, topic, swarm_id)[1])


def _check_swarm(swarm_id: str | None, *, alone: bool) -> None:
    if swarm_id is not None and not alone:
        raise InputError("--swarm excludes --trajectory, --follow and --fold", hint="its order has a last event")


def _pass_on(
    run: Run,
    found: Iterable[Replayed],
    sink: Sink,
    *,
    follow_on: bool,
    max_events: int | None,
) -> int:
    """How many."""
    passed = 0
    try:
        for one in islice(found, max_events):
            sink.put(one)
            passed += 1
            if follow_on:
                run.out.flush()
    except KeyboardInterrupt:
        if not follow_on:
            raise
        run.interrupted()  # the usual end of following: what was passed on is finished as any other
    return passed


def _tell_ranges(run: Run, log: Log, ranges: list[Range], frm: str | None, *, follow_on: bool) -> Log | None:
    """On standard error: what is left out, and that there is nothing. Gives the log where what is asked for may have
    been trimmed, and nothing of it is still to come."""
    late = begun_under(log, run.settings.topic_names.events, ranges, frm)
    if late:
        run.out.warning(f"{kept_in_words(late)}: what was before that was not read; {COLD_HINT}")
    for one in ranges:
        if one.clipped:
            run.out.warning(f"clipped: {one.clipped}")
    if all(one.empty for one in ranges) and not follow_on:
        where = ", ".join(f"{one.partition}:{one.start}-{one.end}" for one in ranges[:4])
        run.out.note(f"the range is empty ({where}{', ...' if len(ranges) > 4 else ''})")
    return log if late and not follow_on else None


def _tell_nothing(run: Run, passed: int | None, ranges: list[Range], wanted: Filter, trimmed: Log | None) -> None:
    """A mistyped name or condition looks like an empty log otherwise; an empty range has been told. Raises
    TrajectoryTrimmed for a trajectory that may lie before where `trimmed` is kept."""
    if passed == 0 and trimmed is not None and wanted.trajectory_id is not None and wanted.where is None:
        check_beginning(trimmed, run.settings.topic_names.events, wanted.trajectory_id)
    if passed != 0 or wanted == Filter() or all(one.empty for one in ranges):
        return
    what = (
        "no event in the range" if wanted.trajectory_id is None else f"no event of {wanted.trajectory_id} in the range"
    )
    run.out.note(what if wanted.where is None else f"{what} meets --where {wanted.where.expression!r}")
