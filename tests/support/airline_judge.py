"""What is wrong with airline runs that workers did while they were killed, beside the same runs left in peace.

idempotent   every recorded call reached the service exactly once: one key, one effect
opaque       the same, where a person was asked after that person's word
probe        exactly once, or never where its result says so; never twice
"""

from __future__ import annotations

from collections import Counter

from tests.support.airline import Recording, effects_chosen
from tests.support.airline_drive import Driven, Plan
from tracklog.schemas import events as ev
from tracklog.schemas.codec import Event
from tracklog.schemas.same_work import same_work
from tracklog.schemas.values import Effect, Ending, ResultStatus

ASKING = (ev.InDoubt, ev.Escalated)


def judge(plan: Plan, driven: Driven, peaceful: Driven) -> list[str]:
    """In words; [] for nothing."""
    wrong = []
    for recording in plan.recordings:
        events = driven.events[recording.id]
        ended = [event.body for event in events if isinstance(event.body, ev.TaskEnded)]
        if [one.ending for one in ended] != [Ending.COMPLETED]:
            wrong.append(f"{recording.id}: ended as {ended}")
        wrong += _wrong_effects(plan, recording, driven)
        if not expired(events):
            difference = same_work(*(_without_asking(one.events[recording.id]) for one in (driven, peaceful)))
            wrong += [] if difference is None else [f"{recording.id}: not the same work: {difference}"]
    return wrong


def _wrong_effects(plan: Plan, recording: Recording, driven: Driven) -> list[str]:
    effects = effects_chosen(plan.effects)
    recorded = Counter(call for call, _ in recording.calls if call[1] in effects)
    made: Counter[tuple[str, str, str]] = Counter()
    for one in driven.effects:
        made[one["run"], one["tool"], one["arguments"]] += one["made"]
    own = {call: count for call, count in made.items() if call[0] == recording.id and call[1] in effects}
    unmade = expired(driven.events[recording.id])
    wrong = [f"{call}: not in the recording" for call in own if call not in recorded]
    for call, count in recorded.items():
        allowed = unmade if effects[call[1]] is Effect.PROBE else 0
        if not count - allowed <= own.get(call, 0) <= count:
            wrong.append(f"{call}: {own.get(call, 0)} effects, recorded is {count}")
    if sum(recorded.values()) - unmade != sum(own.values()):
        wrong.append(
            f"{recording.id}: {sum(own.values())} effects for {sum(recorded.values())} calls, {unmade} expired"
        )
    return wrong


def expired(events: list[Event]) -> int:
    """Calls whose result says that they did not happen."""
    results = (event.body for event in events if isinstance(event.body, ev.ToolResult))
    return len([one for one in results if one.status is ResultStatus.EXPIRED])


def asked(events: list[Event]) -> bool:
    return any(isinstance(event.body, ASKING) for event in events)


def _without_asking(events: list[Event]) -> list[Event]:
    """That nobody knew for a while, and that a person was asked, is no difference in the work done."""
    return [event for event in events if not isinstance(event.body, ASKING)]
