"""A swarm as people and programs are shown it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tracklog.consumers.swarm.waits import ANYBODY, Swarm, Wait

__all__ = ["row_of", "swarm_map", "verdicts", "wait_words"]


def swarm_map(swarm: Swarm) -> dict[str, Any]:
    """For JSON."""
    return {
        "swarm": swarm.name,
        "members": [row_of(swarm, one) for one in swarm.members],
        "deadlocks": [list(circle) for circle in swarm.deadlocks],
        "orphans": list(swarm.orphans),
        "held_up": list(swarm.held_up),
    }


def row_of(swarm: Swarm, trajectory_id: str) -> dict[str, Any]:
    state = swarm.members[trajectory_id]
    parent = None if state.task is None or state.task.parent is None else state.task.parent.trajectory_id
    return {
        "trajectory_id": trajectory_id,
        "agent": "" if state.task is None else state.task.agent,
        "status": state.summary,
        "parent": parent,
        "turn": state.turn,
        "waits": [wait._asdict() for wait in swarm.waits[trajectory_id]],
        "waited_for_by": [one for one, waits in swarm.waits.items() if any(w.whom == trajectory_id for w in waits)],
    }


def wait_words(wait: Wait) -> str:
    """For people."""
    if wait.whom == ANYBODY:
        return "a message from anybody"
    if wait.whom:
        return f"the end of {wait.whom}" if wait.kind == "child" else f"a message from {wait.whom}"
    return f"{wait.kind} {wait.what}".strip()


def verdicts(swarm: Swarm) -> Iterator[str]:
    """One line for each thing that nobody of the swarm can end, with the way out."""
    for circle in swarm.deadlocks:
        around = f"{circle[0]} waits for itself" if len(circle) == 1 else f"{', '.join(circle)} wait for each other"
        yield f"deadlock: {around}; `tracklog send ID TEXT` or `tracklog cancel ID` ends it"
    for one in swarm.orphans:
        wait = next(wait for wait in swarm.waits[one] if wait.whom)
        gone = "all others have ended" if wait.whom == ANYBODY else f"{wait.whom} has ended"
        yield f"orphan: {one} waits for {wait_words(wait)}, and {gone}; `tracklog send {one} TEXT` or cancel it"
    for one in swarm.held_up:
        yield f"held up: {one} waits for one of those"
