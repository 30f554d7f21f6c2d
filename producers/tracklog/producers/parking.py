"""Why a session lets go of a trajectory that has not ended: from the error it is left with to the word in the log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tracklog.producers.divergence import Diverged
from tracklog.schemas.errors import (
    ApprovalNeeded,
    ChildAwaited,
    DriftRefused,
    Moved,
    NothingReceived,
    OutcomeAwaited,
    PersonNeeded,
    StillInDoubt,
    Stuck,
    TimerAwaited,
)
from tracklog.schemas.lifecycle import Parked

__all__ = ["parked_of"]

_WORDS: Final[Mapping[type[BaseException], Parked]] = {
    ApprovalNeeded: Parked.APPROVAL,
    NothingReceived: Parked.MESSAGE,
    OutcomeAwaited: Parked.OUTCOME,
    TimerAwaited: Parked.TIMER,
    ChildAwaited: Parked.CHILD,
    PersonNeeded: Parked.PERSON,
    StillInDoubt: Parked.DOUBT,
    Diverged: Parked.DIVERGED,
    DriftRefused: Parked.DRIFT,
    Stuck: Parked.STUCK,
    Moved: Parked.MOVED,
}


def parked_of(error: BaseException) -> Parked:
    """The reason to be recorded; `failed` for what no session raises by itself."""
    return next((parked for kind, parked in _WORDS.items() if isinstance(error, kind)), Parked.FAILED)
