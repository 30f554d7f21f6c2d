"""What keeps a trajectory from going on, in words, and what a person can do about it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from tracklog.consumers.summary import one_line
from tracklog.schemas.approvals import who_may
from tracklog.schemas.lifecycle import STOPPED, CallStatus, Parked
from tracklog.schemas.state import Call, State
from tracklog.schemas.values import Driver

__all__ = ["stopped_words", "ways_out"]

ID: Final = "ID"

_WAYS: Final[Mapping[str, str]] = {
    Parked.DIVERGED: "the agent is not the one that recorded it. `tracklog replay trajectory {id} --agent MODULE:AGENT`"
    " says where; mend it, then {again}",
    Parked.DRIFT: "its versions are not those that it was left with. Run it with those, or say --drift cross or pin,"
    " then {again}",
    Parked.STUCK: "it makes the same call over and over. {Again} lets it try on; or `tracklog fork {id} --turn N` with"
    " another prompt, or `tracklog cancel {id}`",
    Parked.POISON: "its owners died on it. Their own output says why; then {again}, or `tracklog cancel {id}`",
    Parked.FAILED: "remove the reason, then {again}",
}
"""By the word it was stopped with."""
_AGAIN: Final = "`tracklog retry {id}`"
_AGAIN_IN_LIBRARY: Final = "open its session again"


def ways_out(state: State) -> Iterator[str]:
    """One line for each thing that keeps it; none for one that goes on by itself, or has ended."""
    own = state.trajectory_id
    if state.faults:
        yield f"way out: `tracklog verify {own}` names what is wrong; nothing is written to it until that is known"
    if state.ended:
        return
    if state.parked in STOPPED:
        yield f"stopped: {state.parked}: {one_line(state.reason)}"
        yield f"way out: {_way(state.parked, own, worker=_of_worker(state))}"
    for call_id, call in state.calls.items():
        yield from _call_ways(own, call_id, call)
    if state.parked == Parked.MESSAGE:
        whom = f" from {state.waits_for}" if state.waits_for else ""
        yield f"waits for a message{whom}: `tracklog send {own} TEXT`"
    if state.parked == Parked.CHILD:
        yield f"waits for the end of {state.waits_for}: `tracklog swarm {own}`"


def stopped_words(rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """One line for each word that rows of a list were stopped with."""
    for word in sorted({row["parked"] for row in rows if row["parked"] in STOPPED}):
        yield f"{word}: {_way(word, ID, worker=True)}"


def _way(word: str, trajectory_id: str, *, worker: bool) -> str:
    again = _AGAIN.format(id=trajectory_id) if worker else _AGAIN_IN_LIBRARY
    return _WAYS[word].format(id=trajectory_id, again=again, Again=again[:1].upper() + again[1:])


def _of_worker(state: State) -> bool:
    return state.task is None or state.task.driver is Driver.WORKER


def _call_ways(own: str, call_id: str, call: Call) -> Iterator[str]:
    if call.status is CallStatus.ASKED:
        asked = call.request.may_approve if call.request is not None else ()
        who = f" by {who_may(asked)}" if asked else ""
        yield f"waits for a decision{who} on {call.tool}: `tracklog approvals show {own} {call_id}`"
    elif call.status is CallStatus.ESCALATED:
        yield f"only a person knows whether {call.tool} happened: `tracklog escalations settle {own} {call_id} ...`"
