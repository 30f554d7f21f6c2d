"""Where a trajectory stands towards a run that is to become it: pure."""

from __future__ import annotations

from typing import Final

from tracklog.producers.importers.plan import PLAN_VERSION
from tracklog.producers.importers.run import Run
from tracklog.schemas.state import State
from tracklog.schemas.values import Driver

ALREADY: Final = "already"
"""All of it is in, or it has ended otherwise: there is nothing to append."""

SOURCE_DIGITS: Final = 16


def inbox_source(run: Run) -> str:
    """The source under which the state counts the steps that are in."""
    return f"import:{run.source[:SOURCE_DIGITS]}"


def next_step(run: Run, state: State, tenant: str) -> int | str:
    """The number of the first step that is not in, or ALREADY, or in words why the run cannot go in."""
    task = state.task
    if state.fault is not None:
        return f"it is parked: event {state.fault.seq} is {state.fault.verdict}; see `tracklog verify`"
    if state.tenant and state.tenant != tenant:
        return f"it belongs to tenant {state.tenant!r}, not to {tenant!r}"
    if task is None:
        return 0
    if task.driver is not Driver.IMPORT:
        return f"it is no import: its driver is {task.driver.value!r}"
    if task.source != run.source:
        held = (task.source or "unknown")[:SOURCE_DIGITS]
        return f"it holds another run: its source is {held}, this one's {run.source[:SOURCE_DIGITS]}"
    if state.ended:
        return ALREADY
    if task.code_version != PLAN_VERSION:
        return (
            f"it was begun by importer version {task.code_version!r}; this one is {PLAN_VERSION!r} and cannot finish it"
        )
    return state.inbox.get(inbox_source(run), -1) + 1
