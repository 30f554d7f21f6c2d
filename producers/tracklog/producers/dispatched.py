"""Calls that a dispatcher performs: the intent here, the outcome out of the inbox (DESIGN §8, rule 3).

The intent is appended and nothing more: dispatchers read only what was accepted. What became of it comes as an
`Outcome` and is taken like everything else that others say; until then the session waits, and leaves with
OutcomeAwaited when that takes longer than its bound. A worker goes on when the outcome has come.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from tracklog.producers.lanes import Lanes
from tracklog.producers.record import Record
from tracklog.producers.settle import Timing, person_needed
from tracklog.schemas import events as ev
from tracklog.schemas.codec import Event
from tracklog.schemas.errors import OutcomeAwaited, SessionMisused
from tracklog.schemas.values import Place, ToolCall

__all__ = ["Dispatched"]


class Dispatched:
    """Of one session."""

    def __init__(self, record: Record, timing: Timing) -> None:
        self._record: Final = record
        self._timing = timing
        self._lanes = Lanes()

    def recall(self, events: Iterable[Event]) -> None:
        """Takes in which lanes the open calls of a record have."""
        for event in events:
            match event.body:
                case ev.ToolIntent(place=Place.DISPATCH, call_id=call_id):
                    self._lanes.recall(call_id, event.envelope.ext)
                case ev.ToolResult(call_id=call_id):
                    self._lanes.free(call_id)

    def ext(self, call_id: str) -> Mapping[str, str]:
        """For the intent of a call."""
        return self._lanes.ext(call_id)

    async def result(self, call: ToolCall) -> tuple[int, ev.ToolResult]:
        """(seq, the result) of an open call, once it has come. Raises OutcomeAwaited, PersonNeeded, Cancelled."""
        asked = f"the outcome of call {call.call_id!r}"
        taking = self._record.taking
        if taking is None:
            raise SessionMisused(f"{asked} cannot come: this session has no inbox", hint="open it with durable()")

        def ready() -> bool:
            self._record.check_live(asked)
            return call.call_id in taking.results or call.call_id in taking.escalated

        await taking.look()
        if not await taking.until(ready, self._timing.outcome_wait_s):
            raise OutcomeAwaited(
                f"call {call.call_id!r} of tool {call.tool!r} in trajectory {self._record.trajectory_id!r} is with the "
                f"dispatchers, and nothing was heard within {self._timing.outcome_wait_s:g} s",
                hint="does a dispatcher run (tracklog dispatch MODULE)? Open its session later; workers do so",
            )
        if call.call_id not in taking.results:
            raise person_needed(self._record.trajectory_id, call.call_id, call.tool)
        seq, body = taking.results.pop(call.call_id)
        self._lanes.free(call.call_id)
        self._record.strand.saw(seq)
        return seq, body
