"""What a webhook says: that a call waits for a person, which, and where to answer. Pure, and the same every time.

    approval.requested    a held call waits for a decision
    escalation.opened     a call may have happened, and a person must find out

It names the request and never who is to answer: whoever answers shows a credential of their own. Arguments of the call
are not in it; the page behind the link shows them to who may see them.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import orjson

from tracklog.processors.agenda import ASKED, Waiting

__all__ = ["Message", "message_of"]

ID_CHARS: Final = 32


class Message(NamedTuple):
    """`id` is made of the event that it is about: two messages with one id are one."""

    id: str
    body: bytes


def message_of(one: Waiting, answer_url: str) -> Message:
    """`answer_url`: where people reach the API; empty for no link."""
    held = one.kind == ASKED
    data: dict[str, Any] = {
        "trajectory_id": one.trajectory_id,
        "tenant": one.tenant,
        "call_id": one.call_id,
        "tool": one.tool,
        "reason": one.reason,
        "argument_hash": one.argument_hash,
    }
    if held:
        data |= {
            "request_hash": one.hash,
            "may_approve": list(one.may_approve),
            "expires_at": None if one.expires_us is None else _time(one.expires_us / 1_000_000),
        }
    else:
        data["intent_hash"] = one.hash
    if answer_url:
        ids = "/".join(quote(part, safe="") for part in (one.trajectory_id, one.call_id, one.hash))
        data["answer_url"] = f"{answer_url.rstrip('/')}/{'answers' if held else 'escalations'}/{ids}"
    said = {
        "type": "approval.requested" if held else "escalation.opened",
        "timestamp": _time(one.since_ms / 1000),
        "data": data,
    }
    return Message(f"{'ask' if held else 'doubt'}_{one.hash[:ID_CHARS]}", orjson.dumps(said))


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
