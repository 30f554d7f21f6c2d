"""What may follow what: one literal table each for a trajectory, a tool call and an approval.

A table is state -> step -> next state; an illegal step is a missing key. A step is an event's type, with the
deciding word behind a colon where one event can go two ways (`Authorized:hold`). Nothing else lives here;
the diagrams in docs/lifecycle.md are drawn from these tables (`scripts/lifecycle_doc.py`).

The fold never refuses: an accepted event that has no place in its table is counted as irregular, since
what the log has accepted has happened. Writers refuse to write one.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from tracklog.schemas.events import ApprovalResolved, Authorized, EventBody, TaskEnded
from tracklog.schemas.values import Choice, Ruling


class TrajectoryStatus(StrEnum):
    NEW = "new"
    CLAIMED = "claimed"
    RUNNING = "running"
    CANCELLING = "cancelling"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    REFUSED = "refused"


class CallStatus(StrEnum):
    PROPOSED = "proposed"
    AUTHORIZED = "authorized"
    HELD = "held"
    ASKED = "asked"
    REFUSED = "refused"
    ANSWERED = "answered"
    INTENDED = "intended"
    IN_DOUBT = "in doubt"
    ESCALATED = "escalated"
    SETTLED = "settled"


class ApprovalStatus(StrEnum):
    ASKED = "asked"
    APPROVED = "approved"
    DENIED = "denied"
    EDITED = "edited"
    ANSWERED = "answered"
    EXPIRED = "expired"


class Parked(StrEnum):
    """Why an owner let go of a trajectory that has not ended; in `ext` of its release, under EXT_PARKED."""

    LEFT = "left"
    MOVED = "moved"
    APPROVAL = "approval"
    MESSAGE = "message"
    OUTCOME = "outcome"
    TIMER = "timer"
    CHILD = "child"
    PERSON = "person"
    DOUBT = "doubt"
    DIVERGED = "diverged"
    DRIFT = "drift"
    STUCK = "stuck"
    POISON = "poison"
    FAILED = "failed"


EXT_PARKED: Final = "parked"
EXT_CODE: Final = "code_version"
"""In `ext` of DriftCrossed: the code that goes on, when it is other code."""
EXT_LANE: Final = "lane"
"""In `ext` of a dispatched ToolIntent: the number, from 0, that no other open one of the trajectory has. The calls of
one lane come one after the other, so the outcomes of a lane are numbered by the seq of their intent."""
LANE_DIGITS_MAX: Final = 9
"""A longer number is a forgery: lanes are the smallest numbers that are free."""
STOPPED: Final = frozenset({Parked.DIVERGED, Parked.DRIFT, Parked.STUCK, Parked.POISON, Parked.FAILED})
"""Goes on only when somebody says so; every other reason ends by itself, or by what comes into the inbox."""

_T = TrajectoryStatus
_C = CallStatus
_A = ApprovalStatus

ENDED: Final = frozenset({_T.COMPLETED, _T.FAILED, _T.CANCELLED, _T.REFUSED})
OPEN_INTENT: Final = frozenset({_C.INTENDED, _C.IN_DOUBT, _C.ESCALATED})
"""A call in one of these may have happened: its trajectory cannot end (DESIGN §8, 9)."""

_WORK: Final = (
    "ContextBuilt",
    "ModelReplied",
    *(f"Authorized:{ruling.value}" for ruling in Ruling),
    "ApprovalRequested",
    *(f"ApprovalResolved:{choice.value}" for choice in Choice),
    "ToolIntent",
    "ToolResult",
    "InDoubt",
    "Escalated",
    "Compacted",
    "CheckpointTaken",
    "Observed",
    "MessageSent",
    "MessageReceived",
    "TimerSet",
    "TimerFired",
    "DriftCrossed",
)
_ANY_TIME: Final = ("OwnershipClaimed", "OwnershipReleased", "Annotated", "InboxRefused")
_ENDINGS: Final = {
    "TaskEnded:completed": _T.COMPLETED,
    "TaskEnded:failed": _T.FAILED,
    "TaskEnded:cancelled": _T.CANCELLED,
    "TaskEnded:refused": _T.REFUSED,
}


def _stay(state: TrajectoryStatus, *steps: str) -> dict[str, TrajectoryStatus]:
    return dict.fromkeys(steps, state)


TRAJECTORY: Final[Mapping[TrajectoryStatus, Mapping[str, TrajectoryStatus]]] = {
    _T.NEW: {"OwnershipClaimed": _T.CLAIMED},
    _T.CLAIMED: {**_stay(_T.CLAIMED, *_ANY_TIME), "TaskStarted": _T.RUNNING},
    _T.RUNNING: {**_stay(_T.RUNNING, *_ANY_TIME, *_WORK), "CancelRequested": _T.CANCELLING, **_ENDINGS},
    _T.CANCELLING: {**_stay(_T.CANCELLING, *_ANY_TIME, *_WORK, "CancelRequested"), **_ENDINGS},
    _T.COMPLETED: _stay(_T.COMPLETED, *_ANY_TIME),
    _T.FAILED: _stay(_T.FAILED, *_ANY_TIME),
    _T.CANCELLED: _stay(_T.CANCELLED, *_ANY_TIME),
    _T.REFUSED: _stay(_T.REFUSED, *_ANY_TIME),
}

CALL: Final[Mapping[CallStatus, Mapping[str, CallStatus]]] = {
    _C.PROPOSED: {
        "Authorized:allow": _C.AUTHORIZED,
        "Authorized:hold": _C.HELD,
        "Authorized:deny": _C.REFUSED,
    },
    _C.AUTHORIZED: {"ToolIntent": _C.INTENDED},
    _C.HELD: {"ApprovalRequested": _C.ASKED},
    _C.ASKED: {
        "ApprovalRequested": _C.ASKED,
        "ApprovalResolved:approve": _C.AUTHORIZED,
        "ApprovalResolved:edit": _C.PROPOSED,
        "ApprovalResolved:deny": _C.REFUSED,
        "ApprovalResolved:expire": _C.REFUSED,
        "ApprovalResolved:answer": _C.ANSWERED,
    },
    _C.REFUSED: {"ToolResult": _C.SETTLED},
    _C.ANSWERED: {"ToolResult": _C.SETTLED},
    _C.INTENDED: {"ToolResult": _C.SETTLED, "InDoubt": _C.IN_DOUBT, "Escalated": _C.ESCALATED},
    _C.IN_DOUBT: {"ToolResult": _C.SETTLED, "Escalated": _C.ESCALATED},
    _C.ESCALATED: {"ToolResult": _C.SETTLED, "ToolIntent": _C.INTENDED},
    _C.SETTLED: {},
}

APPROVAL: Final[Mapping[ApprovalStatus, Mapping[str, ApprovalStatus]]] = {
    _A.ASKED: {
        "ApprovalRequested": _A.ASKED,
        "ApprovalResolved:approve": _A.APPROVED,
        "ApprovalResolved:deny": _A.DENIED,
        "ApprovalResolved:edit": _A.EDITED,
        "ApprovalResolved:answer": _A.ANSWERED,
        "ApprovalResolved:expire": _A.EXPIRED,
    },
    _A.APPROVED: {},
    _A.DENIED: {},
    _A.EDITED: {},
    _A.ANSWERED: {},
    _A.EXPIRED: {},
}


def step_of(name: str, body: EventBody | None) -> str:
    """The step an event makes: its type, with the deciding word where there is one."""
    if type(body) is Authorized:  # isinstance of a pydantic model costs five times as much, at every event
        return f"{name}:{body.ruling.value}"
    if type(body) is ApprovalResolved:
        return f"{name}:{body.choice.value}"
    if type(body) is TaskEnded:
        return f"{name}:{body.ending.value}"
    return name


def lane_of(ext: Mapping[str, str]) -> int:
    """The lane that an event states; 0 for one that states none, or what is no number."""
    text = ext.get(EXT_LANE, "0")
    return int(text) if len(text) <= LANE_DIGITS_MAX and text.isdecimal() else 0
