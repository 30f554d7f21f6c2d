"""Tools that are paused now and then, or have preconditions that change: the rules hold as without."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final, cast

from tests.simulation.loop import Process
from tests.simulation.run import Run
from tests.simulation.scenario import TOOLS, Scenario
from tests.simulation.shrink import shown
from tracklog.consumers.dispatch.dispatcher import Dispatcher
from tracklog.producers.tools import CallContext, ToolSet

SEEDS: Final = 15
SEEN_S_MAX: Final = 10.0


class PausedRun(Run):
    """Every tool is paused up to three times; a dispatcher sees each change at a time of its own."""

    def _paused(self, process: Process, dispatcher: Dispatcher) -> Callable[[str], bool]:
        chance = random.Random(f"{self.scenario.seed}/pauses")
        own = random.Random(f"{self.scenario.seed}/{process.name}")
        windows: list[tuple[str, float, float]] = []
        for tool in TOOLS:
            for _ in range(chance.choice((0, 1, 2, 3))):
                start_s = chance.uniform(0.0, 3.0) if chance.random() < 0.7 else chance.uniform(0.0, 200.0)
                end_s = start_s + chance.choice((0.5, 5.0, 40.0, 150.0))
                windows.append((tool, start_s + own.uniform(0.0, SEEN_S_MAX), end_s + own.uniform(0.0, SEEN_S_MAX)))
        for _, _, end_s in windows:
            if end_s > self.loop.time():
                self.loop.later(end_s - self.loop.time(), dispatcher._look_again, process=process)
        return lambda tool: any(
            name == tool and start_s <= self.loop.time() < end_s for name, start_s, end_s in windows
        )


def test_a_pause_makes_no_second_send_and_loses_no_call() -> None:
    # given the work and the faults of many seeds, when they are run with pauses
    for seed in range(SEEDS):
        ended = PausedRun(Scenario.of(seed)).go()
        # then nothing is ever as it must not be, and everything comes to its end
        assert not ended.violation, f"seed {seed}: {shown(Scenario.of(seed), ended)}"


class BarredRun(Run):
    """Tools with a precondition that says yes, says no, or breaks, and mostly no where the call itself has happened."""

    def __init__(self, scenario: Scenario) -> None:
        super().__init__(scenario)
        made = self.world.tools

        async def check(context: CallContext, arguments: Mapping[str, Any]) -> bool:
            await asyncio.sleep(self.loop.chance.uniform(0.0, 3.0))
            if self.loop.chance.random() < 0.1:
                raise ConnectionError("it cannot be found out")
            happened = self.truth.calls[context.call_id].effects > 0
            return self.loop.chance.random() < (0.2 if happened else 0.8)

        barred = ToolSet.of(*(replace(one, precondition=check) for one in made))
        cast(Any, self.world).tools = barred


def test_a_precondition_that_fails_at_any_time_calls_off_nothing_that_has_happened() -> None:
    # given the work and the faults of many seeds, when each tool has a precondition that changes all the time
    for seed in range(SEEDS):
        ended = BarredRun(Scenario.of(seed)).go()
        # then what was called off has not happened and never does, and everything comes to its end
        assert not ended.violation, f"seed {seed}: {shown(Scenario.of(seed), ended)}"
