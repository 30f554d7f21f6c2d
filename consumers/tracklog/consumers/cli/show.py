"""`tracklog show`"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from tracklog.consumers.call_story import call_story
from tracklog.consumers.cli.command import command, new_app
from tracklog.consumers.cli.list_runs import tell_lag
from tracklog.consumers.cli.replay_output import clock_time
from tracklog.consumers.cli.run import Run
from tracklog.consumers.cli.show_call import tell_call
from tracklog.consumers.copying import appended_ms
from tracklog.consumers.event_json import event_map, foreign_map
from tracklog.consumers.read import Reader
from tracklog.consumers.read_live import LOG
from tracklog.consumers.summary import cut, money, one_line
from tracklog.consumers.timeline import Entry, Timeline, records_of, timeline
from tracklog.consumers.ways_out import ways_out
from tracklog.consumers.wiring import check_topic, is_cold, lag_of, opened_log, opened_views
from tracklog.infra.log.trimmed import check_beginning
from tracklog.schemas.errors import InputError
from tracklog.schemas.state import State, dump_state

app = new_app()


@command(app)
def show(
    run: Run,
    trajectory_id: Annotated[str, typer.Argument(metavar="ID", help="The trajectory.")],
    from_log: Annotated[
        bool, typer.Option("--from-log", help="Read the log even when Redis has all of its events.")
    ] = False,
    wide: Annotated[bool, typer.Option("--wide", help="Do not cut lines at the width of the terminal.")] = False,
    call: Annotated[
        str | None, typer.Option(metavar="CALL", help="Only what is about one call, from all topics.")
    ] = None,
) -> None:
    """Show one trajectory as a timeline: turns, calls, results, verdicts, costs, and where each record lies.

    The events come from Redis where it still keeps them all, else from a scan of the trajectory's partition. With
    --call, from the log: the ruling, request, decision and intent of a call, every entry of its attempt ledger with
    the slot it took, outcomes and settlements with what became of them, and its result. The end of its id is enough.

    \b
    Examples:
      tracklog show airline-17-3
      tracklog show trip-1 --call call-2
    """
    topic = run.settings.topic_names.events
    if call is not None:
        with opened_log(run.settings) as log:
            check_topic(log, run.settings)
            tell_call(run, call_story(log, run.settings.topic_names, trajectory_id, call), wide=wide)
        return
    if from_log or is_cold(run.settings):
        with opened_log(run.settings) as log:
            check_topic(log, run.settings)
            source, found = "log", timeline(trajectory_id, records_of(log, topic, trajectory_id))
    else:
        source, found = _warm(run, topic, trajectory_id)
    if not found.state.events:
        with opened_log(run.settings) as log:
            check_beginning(log, topic, trajectory_id)
    if not found.entries:
        raise InputError(f"no trajectory {trajectory_id!r} in {topic}", hint="see: tracklog list")
    if run.as_json:
        run.out.json({"source": source, **timeline_map(found)})
    else:
        tell(run, found, wide=wide)


def _warm(run: Run, topic: str, trajectory_id: str) -> tuple[str, Timeline]:
    """From Redis, where it has every record of the trajectory that it knows of; from the log otherwise."""
    with opened_views(run.settings) as (log, client):
        reader = Reader(client, prefix=run.settings.prefix, log=log)
        found = asyncio.run(reader.records(trajectory_id))
        tell_lag(run, lag_of(log, topic, found.as_of.positions))
        return LOG if found.as_of.source == LOG else "redis", timeline(trajectory_id, found.value)


def timeline_map(found: Timeline) -> dict[str, Any]:
    return {
        "state": json.loads(dump_state(found.state)),
        "records": [
            {
                "verdict": one.verdict or None,
                "fault": one.fault,
                **(foreign_map(one.record, one.reason) if one.event is None else event_map(one.event, one.record)),
            }
            for one in found.entries
        ],
    }


def tell(run: Run, found: Timeline, *, wide: bool = False, entries_max: int | None = None) -> None:
    for line in facts(found):
        run.out.text(line)
    width = None if wide or not run.out.console.is_terminal else run.out.console.width
    turn = None
    for entry in found.entries[:entries_max]:
        now = entry.event.envelope.turn if entry.event is not None and entry.accepted else turn
        if now != turn:
            run.out.text(f"── turn {now} " + "─" * 40, style="bold" if now else "dim")
            turn = now
        line = _line(entry)
        run.out.text(line if width is None else cut(line, width), style=_style(entry))
    if entries_max is not None and len(found.entries) > entries_max:
        run.out.text(f"           … {len(found.entries) - entries_max} more", style="dim")


def facts(found: Timeline) -> Iterator[str]:
    """The state, in a few lines."""
    state, spent = found.state, found.state.spent
    first, last = found.entries[0].record, found.entries[-1].record
    yield f"{state.trajectory_id}  {state.summary}  tenant {state.tenant or '-'}"
    if state.task is not None:
        labels = " ".join(f"{name}={value}" for name, value in state.task.labels.items())
        model = state.model_served or state.task.model or "model not named"
        yield f"  agent {state.task.agent} · {model} · driver {state.task.driver.value} · {labels or 'no labels'}"
        if state.task.source:
            yield f"  source {state.task.source}"
    tokens = f"{spent.input_tokens} → {spent.output_tokens} tokens" if spent.input_tokens else "tokens not recorded"
    cost = money(spent.cost_micro_usd) if spent.cost_micro_usd else "cost not recorded"
    yield f"  {state.turn} turns · {spent.model_calls} model calls · {spent.tool_calls} tool calls · {tokens} · {cost}"
    yield (
        f"  {state.events} events, epoch {state.head.epoch}, head {state.head.hash.hex()[:16]} ·"
        f" partition {first.partition}, offsets {first.offset} to {last.offset} ·"
        f" {clock_time(appended_ms(first))} to {clock_time(appended_ms(last))} UTC"
    )
    if state.harmless:
        counts = ", ".join(f"{count} {verdict}" for verdict, count in sorted(state.harmless.items()))
        yield f"  harmless: {counts}"
    yield from _trouble(state)


def _trouble(state: State) -> Iterator[str]:
    for call_id, call in state.open_intents.items():
        yield f"  open: {call.tool} {call_id} is {call.status.value} since event {call.seq}"
    if state.fault is not None:
        yield f"  FAULT at event {state.fault.seq}: {state.fault.verdict}: {state.fault.detail}"
    yield from (f"  {line}" for line in ways_out(state))


def _line(entry: Entry) -> str:
    place = f"{entry.record.partition}:{entry.record.offset}"
    if entry.event is None:
        return f"{place:>9}       no event: {one_line(entry.reason)}"
    verdict = "" if entry.accepted else f"[{entry.verdict}] "
    return f"{place:>9}  #{entry.event.envelope.seq:<4} {entry.event.name:<17} {verdict}{entry.text}"


def _style(entry: Entry) -> str:
    if entry.fault or entry.event is None:
        return "bold red"
    if not entry.accepted:
        return "dim yellow"
    return _STYLES.get(entry.event.name, "")


_STYLES = {
    "OwnershipClaimed": "dim",
    "OwnershipReleased": "dim",
    "ContextBuilt": "dim",
    "Authorized": "dim",
    "Observed": "dim",
    "ModelReplied": "cyan",
    "ToolIntent": "magenta",
    "ToolResult": "magenta",
    "TaskEnded": "bold green",
    "MessageReceived": "green",
}
