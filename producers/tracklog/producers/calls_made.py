"""Which calls a trajectory has: those its model asked for, and those that were made, with what a fork inherits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from tracklog.infra.log.port import Log
from tracklog.producers.history import read_history
from tracklog.producers.lineage import read_inherited
from tracklog.schemas import events as ev
from tracklog.schemas.codec import Event
from tracklog.schemas.errors import InputError

__all__ = ["calls_in", "check_has_call", "named_calls"]

NAMED_MAX: Final = 20
"""Calls that one error names."""


def calls_in(bodies: Iterable[ev.EventBody | None]) -> Iterator[str]:
    """The ids that replies asked for and intents made, in their order; one may come twice."""
    for body in bodies:
        if isinstance(body, ev.ModelReplied):
            yield from (call.call_id for call in body.tool_calls)
        elif isinstance(body, ev.ToolIntent):
            yield body.call_id


def named_calls(calls: Iterable[str]) -> str:
    """For people: the first of them."""
    named = list(dict.fromkeys(calls))
    return ", ".join(named[:NAMED_MAX]) + (", ..." if len(named) > NAMED_MAX else "")


def check_has_call(log: Log, topic: str, trajectory_id: str, call_id: str) -> None:
    """Reads the record of the trajectory. Blocks. Raises InputError that names the calls it has."""
    own = [event for event, _ in read_history(log, topic, trajectory_id)[1]]
    if call_id in calls_in(event.body for event in own):
        return
    record: list[Event] = [*read_inherited(log, topic, own), *own]
    calls = list(calls_in(event.body for event in record))
    if call_id not in calls:
        raise InputError(
            f"trajectory {trajectory_id!r} has no call {call_id!r}", hint=f"it has {named_calls(calls) or 'no calls'}"
        )
