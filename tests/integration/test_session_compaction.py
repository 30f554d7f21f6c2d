"""Summaries: made once, recorded as produced, used again after a crash and in a replay."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from tests.support.sessions import Program, ScriptedModel, World, asks, new_world, says
from tracklog.producers.replay import replay
from tracklog.producers.session import Session
from tracklog.producers.tools import ToolSet, tool
from tracklog.producers.turn import Agent, Compaction, run_turns
from tracklog.schemas.errors import InvalidEvent
from tracklog.schemas.events import Compacted, ContextBuilt, MessageReceived

TURNS = 9


@tool(effect="readonly")
def look(what: str) -> str:
    return f"found {what}"


TOOLS = ToolSet.of(look)


class Summaries:
    """Makes another summary each time it is asked, as models do."""

    def __init__(self) -> None:
        self.made: Counter[int] = Counter()

    async def __call__(self, messages: Sequence[Any]) -> str:
        self.made[len(messages)] += 1
        return f"summary {self.made.total()} of {len(messages)} messages"


def model() -> ScriptedModel:
    return ScriptedModel(*(asks((f"c{n}", "look")) for n in range(TURNS)), says("done"))


def program(world: World, summaries: Summaries, *, messages_max: int = 8) -> Program:
    agent = Agent(
        "traveller", None, TOOLS, prompt="be kind", compaction=Compaction(summaries, messages_max=messages_max, keep=3)
    )

    async def run(session: Session) -> None:
        await run_turns(session, agent, "book a trip")

    return run


async def test_a_summary_is_recorded_once_and_stands_for_its_messages() -> None:
    world, summaries = new_world(""), Summaries()

    await world.run(model(), program(world, summaries), tools=TOOLS)

    compacted = world.bodies(Compacted)
    assert len(compacted) > 1
    assert [one.summary.text.split(" of ")[0] for one in compacted] == [
        f"summary {n + 1}" for n in range(len(compacted))
    ]
    assert max(one.messages for one in world.bodies(ContextBuilt)) <= 8
    assert len(world.bodies(MessageReceived)) == 1  # the task; no summary is said again


async def test_a_run_that_is_killed_anywhere_makes_no_recorded_summary_again() -> None:
    appends, compactions = await _undisturbed()
    for moment in range(2, appends, 3):
        world, summaries, models = new_world(""), Summaries(), model()
        world.die_at_append = moment
        assert await world.crash(models, program(world, summaries), tools=TOOLS)
        recorded = len(world.bodies(Compacted))
        made = summaries.made.total()
        assert made - recorded <= 1  # made, and killed before it was recorded
        world.die_at_append = None
        await world.run(models, program(world, summaries), tools=TOOLS)
        assert len(world.bodies(Compacted)) == compactions


async def test_a_run_with_summaries_replays_clean_and_another_rule_is_found() -> None:
    world, summaries = new_world(""), Summaries()
    await world.run(model(), program(world, summaries), tools=TOOLS)
    setup = world.setup(model(), tools=TOOLS)

    clean = await replay(world.events(), program(world, Summaries()), setup=setup)
    changed = await replay(world.events(), program(world, Summaries(), messages_max=6), setup=setup)

    assert clean.clean
    assert changed.divergence is not None
    assert "summary" in changed.divergence.asked


def test_a_compaction_that_keeps_everything_is_refused() -> None:
    with pytest.raises(InvalidEvent, match="keeps 6 of 6"):
        Compaction(Summaries(), messages_max=6, keep=6)


async def _undisturbed() -> tuple[int, int]:
    """(appends, summaries) of a run that nobody kills."""
    world = new_world("")
    await world.run(model(), program(world, Summaries()), tools=TOOLS)
    return world.appends, len(world.bodies(Compacted))
