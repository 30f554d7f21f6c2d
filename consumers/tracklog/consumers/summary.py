"""One event in one line, for people. Never longer than asked, never with a line break."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from tracklog.schemas import events as ev
from tracklog.schemas.approvals import who_may
from tracklog.schemas.codec import Event
from tracklog.schemas.values import Body, ContextEdit, EditOp

TEXT_CHARS_MAX: Final = 160
ID_CHARS: Final = 10
JSON: Final = "application/json"


def summary(event: Event) -> str:
    """What the event says, in the words of its type; for one that is not known here, that."""
    if event.problem:
        return f"cannot be believed: {event.problem}"
    if event.flaw:
        return f"cannot be read here: {event.flaw}"
    if event.body is None:
        return f"of a type or version not known here (schema {event.fingerprint.hex()})"
    describe = _DESCRIBE.get(type(event.body))
    return one_line(describe(event.body)) if describe is not None else ""


def one_line(text: str, chars_max: int = TEXT_CHARS_MAX) -> str:
    """The text with its whitespace folded, cut to a length, without characters that move a terminal's cursor."""
    folded = " ".join(text[: 4 * chars_max].split())
    plain = "".join(char if char.isprintable() else "?" for char in folded)
    return cut(plain, chars_max)


def cut(line: str, chars_max: int) -> str:
    """The line, of at most so many characters."""
    return line if len(line) <= chars_max else line[: chars_max - 1] + "…"


def money(micro_usd: int) -> str:
    """Millionths of a US dollar as dollars: four decimals, since calls cost fractions of cents."""
    return f"${micro_usd / 1_000_000:.4f}"


def call_name(call_id: str) -> str:
    """Call ids are long and random; their end tells them apart."""
    return call_id if len(call_id) <= ID_CHARS else "…" + call_id[-(ID_CHARS - 1) :]


def body_text(body: Body | None) -> str:
    if body is None:
        return ""
    if body.media_type == JSON and body.whole and (content := _content(body.text)):
        return content
    return body.text if body.whole else f"{body.text} [{body.size_bytes} bytes in the blob store]"


def _content(text: str) -> str:
    """What a message says, of its JSON; empty for any other JSON."""
    try:
        message = json.loads(text)
    except ValueError:
        return ""
    content = message.get("content") if isinstance(message, dict) else None
    return content if isinstance(content, str) else ""


def _started(body: ev.TaskStarted) -> str:
    labels = " ".join(f"{name}={value}" for name, value in body.labels.items())
    return f"{body.agent} · {body.model or 'model not named'} · {labels} · {body_text(body.task)}"


def _context(body: ev.ContextBuilt) -> str:
    return f"{body.messages} messages ({', '.join(map(_edit, body.edits)) or 'none'})"


def _edit(edit: ContextEdit) -> str:
    return f"{edit.op} {len(edit.seqs) if edit.op is EditOp.ADD else edit.count}"


def _replied(body: ev.ModelReplied) -> str:
    usage = body.usage
    parts = [f"{usage.input_tokens}→{usage.output_tokens} tokens"] if usage.input_tokens or usage.output_tokens else []
    if body.cost_micro_usd is not None:
        parts.append(money(body.cost_micro_usd))
    parts += [f"calls {call.tool}({call.arguments})" for call in body.tool_calls]
    said = body_text(body.reply)
    if body.tool_calls and said.startswith("{"):
        said = ""  # a message without a content says nothing but its calls
    return " · ".join(part for part in (*parts, said) if part)


def _resolved(body: ev.ApprovalResolved) -> str:
    return f"{call_name(body.call_id)}: {body.choice} by {body.approver} {body.reason}"


def _intent(body: ev.ToolIntent) -> str:
    return f"{body.tool}({body_text(body.arguments)}) · {body.effect} · {body.place} · {call_name(body.call_id)}"


def _result(body: ev.ToolResult) -> str:
    took = "" if body.duration_ms is None else f" in {body.duration_ms} ms"
    return f"{call_name(body.call_id)}: {body.status}{took} ({body.settled}) · {body_text(body.output)}"


def _annotated(body: ev.Annotated) -> str:
    return f"{body.name} = {body_text(body.value)} by {body.source} on {body.target}"


def _timer(body: ev.TimerSet) -> str:
    due = f"turn {body.due_turn}" if body.due_at is None else f"{body.due_at} us"
    return f"{body.timer_id} due at {due}"


_DESCRIBE: Final[Mapping[type, Callable[[Any], str]]] = {
    ev.OwnershipClaimed: lambda body: f"{body.owner} ({body.driver}) {body.reason}",
    ev.OwnershipReleased: lambda body: f"{body.owner} {body.reason}",
    ev.TaskStarted: _started,
    ev.ContextBuilt: _context,
    ev.ModelReplied: _replied,
    ev.Authorized: lambda body: f"{call_name(body.call_id)}: {body.ruling} {body.rule} ({body.policy_version})",
    ev.ApprovalRequested: lambda body: f"{call_name(body.call_id)}: may approve: {who_may(body.may_approve)}",
    ev.ApprovalResolved: _resolved,
    ev.ToolIntent: _intent,
    ev.ToolResult: _result,
    ev.InDoubt: lambda body: f"{call_name(body.call_id)}: {body.tried}",
    ev.Escalated: lambda body: f"{call_name(body.call_id)}: asks {body.asked}: {body.tried}",
    ev.Compacted: lambda body: f"turns {body.first_turn} to {body.last_turn}: {body_text(body.summary)}",
    ev.CheckpointTaken: lambda body: f"covers up to event {body.seq_covered} ({body.kind})",
    ev.Observed: lambda body: f"{body.kind} {body.name} #{body.occurrence}: {body_text(body.value)}",
    ev.MessageSent: lambda body: f"to {body.peer}: {body_text(body.message)}",
    ev.MessageReceived: lambda body: f"from {body.peer} ({body.role}): {body_text(body.message)}",
    ev.TimerSet: _timer,
    ev.TimerFired: lambda body: body.timer_id,
    ev.Annotated: _annotated,
    ev.InboxRefused: lambda body: f"{body.kind} {body.refused.source}/{body.refused.seq}: {body.reason}",
    ev.DriftCrossed: lambda body: f"{body.old_model} → {body.new_model}",
    ev.CancelRequested: lambda body: f"by {body.by} {body.reason}",
    ev.TaskEnded: lambda body: f"{body.ending} {body.reason} {body_text(body.result)}",
}
