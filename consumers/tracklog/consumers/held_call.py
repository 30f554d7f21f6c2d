"""A held call as somebody sees it who is to decide about it: what would be done, with what, and who may say so."""

from __future__ import annotations

from typing import Any, NamedTuple

from tracklog.infra.blobs import BlobStore
from tracklog.infra.log.port import Log
from tracklog.producers.bodies import whole_text
from tracklog.producers.history import read_history
from tracklog.producers.taking import requester_of
from tracklog.schemas import events as ev
from tracklog.schemas.approvals import Request, who_may
from tracklog.schemas.errors import InvalidEvent

__all__ = ["HeldCall", "held_call"]


class HeldCall(NamedTuple):
    """`arguments` as they are now, edited perhaps; `asked_ms` is the append time of the request that is open."""

    trajectory_id: str
    tenant: str
    call_id: str
    tool: str
    arguments: str
    request: Request
    requester: str | None
    rule: str
    asked_ms: int

    def map(self) -> dict[str, Any]:
        """For JSON."""
        request = self.request
        return {
            "trajectory_id": self.trajectory_id,
            "tenant": self.tenant,
            "call_id": self.call_id,
            "tool": self.tool,
            "arguments": self.arguments,
            "argument_hash": request.argument_hash.hex(),
            "request_hash": request.hash.hex(),
            "rule": self.rule,
            "reason": request.reason,
            "asked_ms": self.asked_ms,
            "expires_us": request.expires_at,
            "may_approve": list(request.may_approve),
            "requester": self.requester,
            "requester_may": request.requester_may,
            "then": [{"may_approve": list(one.may_approve), "expires_in_s": one.expires_in_s} for one in request.then],
            "asked_before": request.step,
        }

    @property
    def who(self) -> str:
        """Who may decide, in words."""
        but = "" if self.requester is None or self.request.requester_may else f", but not {self.requester}, who asked"
        return f"{who_may(self.request.may_approve)}{but}"


def held_call(log: Log, topic: str, blobs: BlobStore, trajectory_id: str, call_id: str) -> HeldCall:
    """Scans the trajectory's partition. Raises InvalidEvent for a call that waits for nobody."""
    state, accepted = read_history(log, topic, trajectory_id)
    call = state.pending_approvals.get(call_id)
    if call is None or call.request is None:
        open_ones = ", ".join(state.pending_approvals) or "none"
        raise InvalidEvent(
            f"call {call_id!r} of trajectory {trajectory_id!r} waits for no decision",
            hint=f"those that do: {open_ones}; what became of it: tracklog show {trajectory_id} --call {call_id}",
        )
    arguments, rule, asked_ms = "", "", 0
    for event, position in accepted:
        match event.body:
            case ev.ModelReplied(tool_calls=calls):
                arguments = next((one.arguments for one in calls if one.call_id == call_id), arguments)
            case ev.ApprovalResolved(arguments=edited) as body if edited is not None and body.call_id == call_id:
                arguments = whole_text(edited, blobs)
            case ev.Authorized() as body if body.call_id == call_id:
                rule = body.rule
            case ev.ApprovalRequested() as body if body.call_id == call_id:
                asked_ms = position.timestamp_ms
            case _:
                pass
    about = trajectory_id, state.tenant, call_id, call.tool
    return HeldCall(*about, arguments, call.request, requester_of(state), rule, asked_ms)
