"""What a turn costs the log, and that opening a record costs no more than in proportion to its events.

Operations are counted, not time: `make bench` has the times.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.support.ledger import ledger
from tests.support.sessions import ScriptedModel, asks, new_world, says
from tracklog.producers import assembly, track
from tracklog.producers.importers import transcript
from tracklog.producers.models import ModelAnswer
from tracklog.producers.writer import TrajectoryWriter
from tracklog.schemas.values import Effect

BARRIERS_A_TURN_MAX = 3
OWN_EVENTS = 4
"""Claims and releases of the opening itself."""


@pytest.fixture
def service() -> Iterator[str]:
    with ledger() as (_, url):
        yield url


@contextmanager
def counting(*places: tuple[Any, str]) -> Iterator[Counter[str]]:
    """How often these functions are called meanwhile, by name."""
    counts: Counter[str] = Counter()
    with pytest.MonkeyPatch.context() as patched:
        for place, name in places:
            patched.setattr(place, name, _counted(getattr(place, name), counts, name))
        yield counts


def _counted(real: Callable[..., Any], counts: Counter[str], name: str) -> Callable[..., Any]:
    def function(*arguments: Any, **options: Any) -> Any:
        counts[name] += 1
        return real(*arguments, **options)

    return function


def replies(turns: int, tool: str) -> list[ModelAnswer]:
    return [asks((f"c{n}", tool)) for n in range(turns)]


@pytest.mark.parametrize("effect", list(Effect))
async def test_a_turn_with_one_call_waits_for_the_log_at_most_three_times(service: str, effect: Effect) -> None:
    waits = []
    for turns in (2, 7):
        with counting((TrajectoryWriter, "barrier")) as counts:
            await new_world(service).run(ScriptedModel(*replies(turns, effect.value), says("done")))
        waits.append(counts["barrier"])

    few, many = waits
    assert 1 <= (many - few) / 5 <= BARRIERS_A_TURN_MAX


async def test_opening_twice_the_events_costs_at_most_twice_as_much(service: str) -> None:
    """Each event is decoded and folded once, each message read once, and hashed twice: as recorded, and as given."""
    costs = []
    for turns in (20, 40):
        world, model = new_world(service), ScriptedModel(*replies(turns, "readonly"))
        with pytest.raises(IndexError):  # it has no further reply
            await world.run(model)
        events = len(world.events())
        read = ((track, "decode_event"), (track, "fold"), (assembly, "_read"), (transcript, "message_hash"))
        with counting(*read) as counts, pytest.raises(IndexError):
            await world.run(model)
        costs.append(counts)
        assert counts["decode_event"] <= counts["fold"] <= events + OWN_EVENTS
        assert counts["_read"] == 2 * turns + 2
        assert counts["message_hash"] <= 2 * counts["_read"]

    half, whole = costs
    assert all(whole[name] <= 2 * half[name] for name in half)
