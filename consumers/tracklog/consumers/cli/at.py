"""`tracklog at`"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final

import typer

from tracklog.consumers.cli.command import command, new_app
from tracklog.consumers.cli.run import Run
from tracklog.consumers.event_json import event_map
from tracklog.consumers.moment import Files, Moment, Ruled, Seen, moment
from tracklog.consumers.summary import money, one_line, summary
from tracklog.consumers.turns import SeenMessage, read_turns
from tracklog.consumers.wiring import blobs_of, check_topic, opened_log
from tracklog.producers.asked import EXT_ASKED
from tracklog.producers.versions import Versions
from tracklog.schemas.state import dump_state
from tracklog.schemas.values import Budgets

FILES_SHOWN_MAX: Final = 50

app = new_app()


@command(app)
def at(
    run: Run,
    trajectory_id: Annotated[str, typer.Argument(metavar="ID", help="The trajectory.")],
    turn: Annotated[
        int | None, typer.Option(min=0, help="The turn (else the last one); 0 is what comes before the first.")
    ] = None,
    whole: Annotated[bool, typer.Option("--whole", help="Print messages in full, not a line of each.")] = False,
) -> None:
    """Show a trajectory as it was at the end of a turn: what the model saw, what was allowed, what was left and open.

    The context is rebuilt message by message, with the tools that were offered, and its hash is compared with the
    recorded one: exit code 1 when it is another one or a blob is missing. Files are those of the last checkpoint
    until then. Turns that a fork inherits are shown as its origin did them.

    \b
    Examples:
      tracklog at airline-17-3 --turn 4
      tracklog at airline-17-3 --turn 4 --json | jq .context.messages
    """
    with opened_log(run.settings) as log:
        check_topic(log, run.settings)
        turns = read_turns(log, run.settings.topic_names.events, trajectory_id, blobs_of(run.settings))
        found = moment(turns, turns.last if turn is None else turn)
    if run.as_json:
        run.out.json(moment_map(found))
    else:
        for line in lines(found, whole=whole):
            run.out.text(line)
    for problem in _problems(found):
        run.out.warning(problem)
        run.faulty()


def _problems(found: Moment) -> Iterator[str]:
    if found.context is not None and found.context.problem:
        yield f"the context cannot be shown as it was: {found.context.problem}"
    if found.files is not None and found.files.problem:
        yield f"the files cannot be shown: {found.files.problem}"


def moment_map(found: Moment) -> dict[str, Any]:
    """For JSON. Events are as `show --json` has them."""
    state = json.loads(dump_state(found.state))
    return {
        "trajectory_id": found.trajectory_id,
        "turn": found.turn,
        "last_turn": found.last_turn,
        "inherited_from": found.state.trajectory_id if found.inherited else None,
        "state": state,
        "versions": None if found.versions is None else found.versions._asdict(),
        "context": None if found.context is None else _context_map(found.context),
        "reply": None if found.reply is None else event_map(found.reply),
        "calls": [_call_map(one) for one in found.calls],
        "spent": found.spent._asdict(),
        "budgets": found.budgets.model_dump(),
        "left": None if found.left is None else found.left.model_dump(),
        "open_calls": state["calls"],
        "inbox": {"taken": dict(found.state.inbox), "position": found.state.inbox_position},
        "files": None if found.files is None else _files_map(found.files),
    }


def _context_map(seen: Seen) -> dict[str, Any]:
    asked = seen.event.envelope.ext.get(EXT_ASKED)
    return {
        "seq": seen.event.envelope.seq,
        "rule_version": seen.rule_version,
        "hash": seen.recorded,
        "recomputed": seen.recomputed or None,
        "as_recorded": not seen.problem,
        "problem": seen.problem or None,
        "messages": [one.message for one in seen.messages],
        "from": [{"trajectory_id": one.trajectory_id, "seq": one.seq} for one in seen.messages],
        "tools_hash": seen.tools_hash or None,
        "tools": seen.tools,
        "asked": None if asked is None else json.loads(asked),
    }


def _call_map(one: Ruled) -> dict[str, Any]:
    return {
        **one.call.model_dump(),
        "said": [event_map(event) for event in one.said],
        "intent": None if one.intent is None else event_map(one.intent),
        "result": None if one.result is None else event_map(one.result),
    }


def _files_map(files: Files) -> dict[str, Any]:
    return {
        "seq": files.event.envelope.seq,
        "turn": files.event.envelope.turn,
        "tree_hash": files.tree_hash,
        "problem": files.problem or None,
        "entries": {path: entry._asdict() for path, entry in files.entries.items()},
    }


def lines(found: Moment, *, whole: bool = False) -> Iterator[str]:
    """The same for people."""
    state = found.state
    of = f" (of {state.trajectory_id}, which it was forked from)" if found.inherited else ""
    yield f"{found.trajectory_id}  at the end of turn {found.turn} of {found.last_turn}{of}: {state.summary}"
    yield f"  event {state.head.seq}, epoch {state.head.epoch}, head {state.head.hash.hex()[:16]}"
    if found.versions is not None:
        yield f"  versions  {_versions(found.versions)}"
    spent = found.spent
    used = f"{spent.turns} turns · {spent.tool_calls} tool calls · {spent.tokens} tokens"
    yield f"  spent     {used} · {money(spent.cost_micro_usd)} · {spent.wall_ms} ms"
    yield f"  budgets   {_budgets(found.budgets, found.left) or 'none'}"
    taken = " · ".join(f"{source} up to {seq}" for source, seq in sorted(state.inbox.items())[:FILES_SHOWN_MAX])
    position = "" if state.inbox_position is None else f", position {state.inbox_position}"
    yield f"  inbox     {taken or 'nothing taken'}{position}"
    if found.context is not None:
        yield from _context_lines(found.context, whole)
    if found.reply is not None:
        yield f"reply  event {found.reply.envelope.seq}"
        yield f"  {summary(found.reply)}"
    for one in found.calls:
        yield f"call  {one.call.call_id}  {one.call.tool}({one_line(one.call.arguments)})"
        yield from (f"  {event.name:<17} {summary(event)}" for event in (*one.said, one.intent, one.result) if event)
    for call_id, call in found.open_calls.items():
        since = "" if call.seq < 0 else f" since event {call.seq}"
        yield f"open  {call.tool} {call_id} is {call.status.value}{since}"
    if found.files is not None:
        yield from _file_lines(found.files)


def _context_lines(seen: Seen, whole: bool) -> Iterator[str]:
    verdict = "as recorded" if not seen.problem else "NOT as recorded"
    size = f"{len(seen.messages)} messages"
    yield f"context  event {seen.event.envelope.seq}, {size}, hash {seen.recorded[:16]}: {verdict}"
    for number, one in enumerate(seen.messages):
        yield f"  {number:>3}  {_said(one, whole)}"
    if seen.tools_hash:
        names = ", ".join(_tool_name(one) for one in seen.tools) if isinstance(seen.tools, list) else "?"
        yield f"  tools {seen.tools_hash[:16]}: {names}"


def _said(one: SeenMessage, whole: bool) -> str:
    if one.message is None:
        return f"?          event {one.seq}: {one.problem}"
    content = one.message.get("content")
    text = content if isinstance(content, str) else "" if content is None else json.dumps(content, ensure_ascii=False)
    calls = " ".join(_asked(call) for call in one.message.get("tool_calls") or ())
    said = " ".join(part for part in (text, calls) if part)
    return f"{one.message.get('role', '?'):<10} {said if whole else one_line(said)}"


def _asked(call: Any) -> str:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping):
        return json.dumps(call, ensure_ascii=False)
    return f"→ {function.get('name')}({function.get('arguments')})"


def _tool_name(tool: Any) -> str:
    function = tool.get("function", tool) if isinstance(tool, Mapping) else tool
    return str(function.get("name", "?")) if isinstance(function, Mapping) else str(function)


def _versions(versions: Versions) -> str:
    hashes = {"prompt": versions.prompt, "tools": versions.tools}
    parts = [f"model {versions.model or 'not named'}"]
    parts += [f"{name} {'none' if digest is None else digest.hex()[:16]}" for name, digest in hashes.items()]
    parts.append(f"code {versions.code or 'not named'}")
    return " · ".join(parts)


def _budgets(limits: Budgets, left: Budgets | None) -> str:
    remaining = left.model_dump() if left is not None else {}
    given = {name: limit for name, limit in limits.model_dump().items() if limit is not None}
    return " · ".join(f"{name} {remaining.get(name)} of {limit} left" for name, limit in given.items())


def _file_lines(files: Files) -> Iterator[str]:
    where = f"{files.event.name} at event {files.event.envelope.seq}, turn {files.event.envelope.turn}"
    yield f"files  as of {where}: {len(files.entries)} entries, tree {files.tree_hash[:16]}"
    for path, entry in list(files.entries.items())[:FILES_SHOWN_MAX]:
        yield f"  {entry.mode:04o}  {entry.kind.value:<10} {entry.size:>9}  {path}"
    if len(files.entries) > FILES_SHOWN_MAX:
        yield f"  … {len(files.entries) - FILES_SHOWN_MAX} more: --json has them all"
