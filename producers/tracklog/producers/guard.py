"""Refuses to write an event that has no place in the lifecycle tables (DESIGN §1, §8).

The fold takes what the log holds, irregular or not; a writer does not add to it.
"""

from __future__ import annotations

from typing import Final

from tracklog.schemas.errors import InvalidEvent, TrajectoryEnded
from tracklog.schemas.events import EventBody, ModelReplied, TaskEnded
from tracklog.schemas.lifecycle import CALL, ENDED, OPEN_INTENT, TRAJECTORY, CallStatus, step_of
from tracklog.schemas.state import State

_CALL_EVENTS: Final = frozenset(step.split(":")[0] for steps in CALL.values() for step in steps)


class Guard:
    """Where a trajectory and its open calls stand, as far as written by one writer."""

    def __init__(self, state: State) -> None:
        self._trajectory_id = state.trajectory_id
        self._status = state.status
        self._calls = {call_id: call.status for call_id, call in state.calls.items()}

    def pass_on(self, body: EventBody) -> None:
        """Takes the step of an event. Raises TrajectoryEnded or InvalidEvent and takes none."""
        name = type(body).__name__
        step = step_of(name, body)
        after = TRAJECTORY[self._status].get(step)
        if after is None:
            raise self._misplaced(step)
        if type(body) is ModelReplied:
            self._propose(body)
        elif type(body) is TaskEnded:
            self._check_settled()
        elif name in _CALL_EVENTS:
            self._move_call(body.call_id, step)  # type: ignore[attr-defined]
        self._status = after

    def _misplaced(self, step: str) -> InvalidEvent | TrajectoryEnded:
        if self._status in ENDED:
            return TrajectoryEnded(
                f"trajectory {self._trajectory_id!r} has ended ({self._status.value}); {step} cannot follow",
                hint="annotate it, or fork it to go on from one of its turns",
            )
        return InvalidEvent(
            f"{step} cannot follow in trajectory {self._trajectory_id!r}, which is {self._status.value}"
        )

    def _propose(self, body: ModelReplied) -> None:
        known = [call.call_id for call in body.tool_calls if call.call_id in self._calls]
        if known:
            raise InvalidEvent(
                f"call id {known[0]!r} in trajectory {self._trajectory_id!r} is still open from an earlier reply",
                hint="give every call of a trajectory an id of its own",
            )
        self._calls.update((call.call_id, CallStatus.PROPOSED) for call in body.tool_calls)

    def _check_settled(self) -> None:
        held = [call_id for call_id, status in self._calls.items() if status in OPEN_INTENT]
        if held:
            raise InvalidEvent(
                f"trajectory {self._trajectory_id!r} cannot end: call {held[0]!r} may have happened and has no result",
                hint="settle it first (DESIGN §8, rule 9)",
            )

    def _move_call(self, call_id: str, step: str) -> None:
        status = self._calls.get(call_id)
        after = None if status is None else CALL[status].get(step)
        if after is None:
            stands = "not open" if status is None else status.value
            raise InvalidEvent(
                f"{step} cannot follow for call {call_id!r} of trajectory {self._trajectory_id!r}, which is {stands}"
            )
        if after is CallStatus.SETTLED:
            del self._calls[call_id]
        else:
            self._calls[call_id] = after
