"""The smallest scenario that still goes wrong in the same way, by leaving out one thing after the other."""

from __future__ import annotations

import re
from typing import Final

from tests.simulation.run import Ended, run
from tests.simulation.scenario import Scenario
from tracklog.schemas.values import ResultStatus

RUNS_MAX: Final = 300
_NAMES: Final = r"\S*\d\S*|\[.*?\]|\b(" + "|".join(one.value for one in ResultStatus) + r")\b"


def shrink(scenario: Scenario) -> tuple[Scenario, Ended]:
    """(the smallest that was found, how it ended). At most RUNS_MAX runs."""
    ended, runs = run(scenario), 1
    smaller = bool(ended.violation)
    while smaller:
        smaller = False
        for one in scenario.smaller():
            tried, runs = run(one), runs + 1
            if kind_of(tried.violation) == kind_of(ended.violation):
                scenario, ended, smaller = one, tried, True
                break
            if runs >= RUNS_MAX:
                return scenario, ended
    return scenario, ended


def kind_of(violation: str) -> str:
    """What goes wrong, whatever it goes wrong with and whatever was said of that."""
    return re.sub(_NAMES, "", violation)


def shown(scenario: Scenario, ended: Ended, lines: int = 60) -> str:
    """For people: what goes wrong, the scenario, and the last lines of its trace."""
    last = ended.trace[-lines:]
    left_out = f"... {len(ended.trace) - lines} lines before\n" if len(ended.trace) > lines else ""
    return f"{ended.violation}\n{scenario}\n{left_out}" + "\n".join(last)
