"""A trajectory that somebody cancelled: it ends, once every call of it that may have happened is settled.

That needs nothing of its program: one whose program diverges, or whose agent no longer exists, can be cancelled too.
"""

from __future__ import annotations

from tracklog.producers.pen import WriterPen
from tracklog.producers.taking import Taking
from tracklog.schemas import events as ev
from tracklog.schemas.errors import Cancelled
from tracklog.schemas.lifecycle import Parked
from tracklog.schemas.limits import TEXT_FIELD_CHARS_MAX
from tracklog.schemas.state import State
from tracklog.schemas.values import Ending, Place

__all__ = ["check_cancelled", "obey"]


def check_cancelled(taking: Taking, state: State) -> None:
    """Raises Cancelled for a trajectory that was cancelled and has no call to be settled."""
    if taking.cancelled is not None and not state.open_intents:
        raise Cancelled(f"trajectory {state.trajectory_id!r} was cancelled: {taking.cancelled}")


async def obey(pen: WriterPen, cancelled: Cancelled) -> None:
    """Ends a trajectory that was cancelled, unless a call of it may have happened and has no result; lets it go."""
    state = await pen.standing()
    if not state.ended and not state.open_intents:
        reason = cancelled.message[:TEXT_FIELD_CHARS_MAX]
        await pen.append(ev.TaskEnded(ending=Ending.CANCELLED, reason=reason), turn=state.turn, cause=None)
    places = {call.place for call in state.open_intents.values()}
    parked = Parked.DOUBT if Place.INLINE in places else Parked.OUTCOME if places else None
    await pen.release("cancelled", parked=parked)
