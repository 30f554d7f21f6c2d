"""The calls that an earlier owner left without an outcome, settled when a trajectory is opened again (DESIGN §8)."""

from __future__ import annotations

from collections.abc import Sequence

from tracklog.producers.calls import result_body, settling_of
from tracklog.producers.cursor import Cursor
from tracklog.producers.history import Accepted
from tracklog.producers.pen import WriterPen
from tracklog.producers.record import Record
from tracklog.producers.settle import Standing
from tracklog.producers.setup import Setup
from tracklog.schemas import events as ev
from tracklog.schemas.errors import SessionError
from tracklog.schemas.lifecycle import CallStatus
from tracklog.schemas.state import Call
from tracklog.schemas.values import Place

__all__ = ["settle_all"]


async def settle_all(setup: Setup, pen: WriterPen, history: Sequence[Accepted]) -> None:
    """Settles every open call, in the order of the intents. One that cannot be settled does not keep the others.

    `history` is what was accepted up to the state of the pen's writer. Raises what `Settling.settle` raises, for the
    first of those that cannot be settled.
    """
    trajectory_id, state = pen.writer.trajectory_id, pen.writer.state
    settling = settling_of(setup, trajectory_id, pen)
    record = Record(trajectory_id, Cursor(()), pen, setup.store, body_inline_bytes_max=setup.body_inline_bytes_max)
    held: list[SessionError] = []
    for call_id, call in sorted(state.open_intents.items(), key=lambda one: one[1].seq):
        standing = await _standing(record, call_id, call, history)
        if standing is None:
            continue
        try:
            outcome = await settling.settle(standing)
        except SessionError as error:
            held.append(error)
            continue
        body = await result_body(record, call_id, outcome, standing.attempts)
        await pen.append(body, turn=call.turn, cause=call.seq)
    if held:
        raise held[0]


async def _standing(record: Record, call_id: str, call: Call, history: Sequence[Accepted]) -> Standing | None:
    """The open call as its intent says; None for one that is nobody's to run."""
    if call.place is not Place.INLINE:
        return None
    event, position = next(one for one in history if one[0].envelope.seq == call.seq)
    intent = event.body
    assert isinstance(intent, ev.ToolIntent)
    return Standing(
        intent,
        await record.whole(intent.arguments),
        call.seq,
        call.turn,
        appended_us=position.timestamp_ms * 1000,
        in_doubt=call.status is not CallStatus.INTENDED,
        asked=call.status is CallStatus.ESCALATED,
        attempts=1,
    )
