"""The state of a trajectory: what folding its accepted events gives (DESIGN §1).

Plain frozen values; `fold.py` says how events move them. Only content is in it, no offset and no time of
the log, so the same events folded anywhere give the same state. Calls are kept while they are open, then
only counted: a state stays small however long its trajectory.
"""

from __future__ import annotations

import binascii
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import orjson
from pydantic import ConfigDict, TypeAdapter

from tracklog.schemas.approvals import Request
from tracklog.schemas.head import EMPTY_HEAD, Head
from tracklog.schemas.lifecycle import ENDED, OPEN_INTENT, STOPPED, CallStatus, TrajectoryStatus
from tracklog.schemas.values import ZERO_HASH, Budgets, Driver, Effect, Place, Ref

_EMPTY: Final[Mapping[Any, Any]] = {}


class Task(NamedTuple):
    """What `TaskStarted` said, as far as anyone looks it up."""

    driver: Driver
    agent: str
    model: str
    model_version: str
    prompt: bytes | None
    tools: bytes | None
    labels: Mapping[str, str]
    source: str | None
    swarm: str | None
    parent: Ref | None
    origin: Ref | None
    conversation_id: str | None
    on_behalf_of: str | None
    code_version: str
    budgets: Budgets = Budgets()


class Call(NamedTuple):
    """An open tool call. `seq`, `hash` and `lane` are those of its intent; -1 and zeros before there is one. `request`
    is the last one to approve it."""

    tool: str
    status: CallStatus
    turn: int
    seq: int = -1
    hash: bytes = ZERO_HASH
    effect: Effect = Effect.OPAQUE
    place: Place = Place.RECORDED
    idempotency_key: str = ""
    key_ttl_ms: int | None = None
    not_after: int | None = None
    request_hash: bytes | None = None
    request: Request | None = None
    lane: int = 0


class Spent(NamedTuple):
    """Totals so far. Money in millionths of a US dollar, time in milliseconds."""

    model_calls: int = 0
    tool_calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_micro_usd: int = 0
    tool_ms: int = 0


class Fault(NamedTuple):
    """The first thing wrong: which event (its seq), and what."""

    seq: int
    verdict: str
    detail: str


class Timer(NamedTuple):
    """Due at a turn or at a time (microseconds since 1970 UTC): one of the two."""

    due_turn: int | None = None
    due_at: int | None = None


class Child(NamedTuple):
    """A child run whose outcome was not taken: seq and hash of the event that states it, and its lane."""

    seq: int
    hash: bytes
    lane: int


class MessageRef(NamedTuple):
    """A message of the context: an event of this trajectory (`trajectory_id` None) or of another."""

    seq: int
    trajectory_id: str | None = None


class State(NamedTuple):
    """Everything known of one trajectory.

    `parked`: why its last owner let go of it, "" while it is owned. `tries`: claims since it last got on, or was let
    go of: those of owners that died. `waits_for`: the trajectory that it waits for, where it was let go of for one.
    `sent`: the seq of the last message to each peer.
    """

    trajectory_id: str
    tenant: str = ""
    head: Head = EMPTY_HEAD
    status: TrajectoryStatus = TrajectoryStatus.NEW
    task: Task | None = None
    turn: int = 0
    lamport: int = 0
    model_served: str = ""
    context: tuple[MessageRef, ...] = ()
    calls: Mapping[str, Call] = _EMPTY
    tools: Mapping[str, int] = _EMPTY
    timers: Mapping[str, Timer] = _EMPTY
    children: Mapping[str, Child] = _EMPTY
    sent: Mapping[str, int] = _EMPTY
    spent: Spent = Spent()
    inbox: Mapping[str, int] = _EMPTY
    inbox_position: int | None = None
    reason: str = ""
    parked: str = ""
    waits_for: str = ""
    tries: int = 0
    events: int = 0
    annotations: int = 0
    checkpoint_seq: int | None = None
    unknown: int = 0
    irregular: int = 0
    harmless: Mapping[str, int] = _EMPTY
    faults: int = 0
    fault: Fault | None = None

    @property
    def ended(self) -> bool:
        return self.status in ENDED

    @property
    def open_intents(self) -> dict[str, Call]:
        return {call_id: call for call_id, call in self.calls.items() if call.status in OPEN_INTENT}

    @property
    def pending_approvals(self) -> dict[str, Call]:
        return {call_id: call for call_id, call in self.calls.items() if call.status is CallStatus.ASKED}

    @property
    def summary(self) -> str:
        """One word for lists: the status, or what keeps a running trajectory from going on."""
        if self.faults:
            return "faulty"
        if self.ended:
            return self.status.value
        if self.parked in STOPPED:
            return self.parked
        statuses = {call.status for call in self.calls.values()}
        if CallStatus.ESCALATED in statuses or CallStatus.IN_DOUBT in statuses:
            return "in doubt"
        if CallStatus.ASKED in statuses:
            return "waiting"
        return self.status.value


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return _base64(value)
    if isinstance(value, Head):  # its hashes at once: one by one they were a third of writing a state
        hashes = {"recent": [_base64(one) for one in value.recent], "lost": [_base64(one) for one in value.lost]}
        return {**value._asdict(), **hashes}
    if isinstance(value, Ref | Budgets):
        return value.model_dump()
    if hasattr(value, "_asdict"):
        return value._asdict()
    raise TypeError(f"a state holds no {type(value).__name__}")


def _base64(value: bytes) -> str:
    return binascii.b2a_base64(value, newline=False).decode()


_ADAPTER: Final = TypeAdapter(State, config=ConfigDict(val_json_bytes="base64"))


def dump_state(state: State) -> bytes:
    """The state as JSON; equal states give equal bytes. Bytes are base64, field names those of the classes."""
    return orjson.dumps(state, default=_plain, option=orjson.OPT_SORT_KEYS)


def load_state(data: bytes) -> State:
    """The inverse of `dump_state`. Raises pydantic.ValidationError for anything else."""
    return _ADAPTER.validate_json(data)
