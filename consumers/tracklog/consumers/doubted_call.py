"""A call that may have happened, as somebody sees it who is to find out: what was to be done, and what was tried."""

from __future__ import annotations

from typing import NamedTuple

from tracklog.infra.blobs import BlobStore
from tracklog.infra.log.port import Log
from tracklog.producers.bodies import whole_text
from tracklog.producers.history import read_history
from tracklog.schemas import events as ev
from tracklog.schemas.errors import InvalidEvent
from tracklog.schemas.lifecycle import CallStatus

__all__ = ["DoubtedCall", "doubted_call"]


class DoubtedCall(NamedTuple):
    """`intent_hash` is of the intent that is open, in hex."""

    tool: str
    arguments: str
    tried: str
    intent_hash: str


def doubted_call(log: Log, topic: str, blobs: BlobStore, trajectory_id: str, call_id: str) -> DoubtedCall:
    """Scans the trajectory's partition. Raises InvalidEvent for a call that nobody was asked about."""
    state, accepted = read_history(log, topic, trajectory_id)
    call = state.calls.get(call_id)
    if call is None or call.status is not CallStatus.ESCALATED:
        raise InvalidEvent(
            f"nobody is asked about call {call_id!r} of trajectory {trajectory_id!r} (any more)",
            hint=f"what became of it: tracklog show {trajectory_id} --call {call_id}",
        )
    arguments, tried = "", ""
    for event, _ in accepted:
        if event.hash == call.hash and isinstance(event.body, ev.ToolIntent):
            arguments = whole_text(event.body.arguments, blobs)
        elif isinstance(event.body, ev.Escalated) and event.body.call_id == call_id:
            tried = event.body.tried
    return DoubtedCall(call.tool, arguments, tried, call.hash.hex())
