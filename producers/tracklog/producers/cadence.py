"""How often to take a checkpoint: as often as the pause it costs and the failures it saves from balance. Pure.

Young's rule, with Daly's correction for pauses that are not small against the time between failures (J. T. Daly,
"A higher order estimate of the optimum checkpoint interval for restart dumps", 2006): with a pause C and a mean time
between failures M,

    interval = sqrt(2 C M) * (1 + sqrt(C / 2M) / 3 + (C / 2M) / 9) - C      while C < 2M, else M

The pause is measured, the failure rate is set. Time counts from the last checkpoint of this process; turns count from
the last checkpoint in the record, so that a process that is killed again and again before its interval is over gets on.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

__all__ = ["FAILURES_A_DAY", "PAUSE_S", "TURNS_MAX", "Cadence", "interval_s"]

DAY_S: Final = 86_400.0
FAILURES_A_DAY: Final = 1.0
PAUSE_S: Final = 0.05
"""Assumed until one was measured."""
PAUSE_S_MIN: Final = 0.001
"""Taken for a pause that is too short to be measured."""
NEWEST: Final = 0.25
"""Weight of the newest pause; the earlier ones share the rest."""
TURNS_MAX: Final = 50
"""Turns after which a checkpoint is due whatever the time: bounds what is read when a session is opened."""


def interval_s(pause_s: float, failures_a_day: float) -> float:
    """Seconds of work between two checkpoints; infinite when nothing ever fails.

    Raises ValueError for a pause below zero or a rate that is no number from 0 on.
    """
    if not (math.isfinite(pause_s) and pause_s >= 0):
        raise ValueError(f"a pause takes 0 s or more, not {pause_s}")
    if not (math.isfinite(failures_a_day) and failures_a_day >= 0):
        raise ValueError(f"failures_a_day is a number from 0 on, not {failures_a_day}")
    if failures_a_day == 0:
        return math.inf
    between_s = DAY_S / failures_a_day
    if pause_s >= 2 * between_s:
        return between_s
    share = pause_s / (2 * between_s)
    return math.sqrt(2 * pause_s * between_s) * (1 + math.sqrt(share) / 3 + share / 9) - pause_s


@dataclass(slots=True)
class Cadence:
    """Says when a checkpoint is due. `failures_a_day` 0: never by time. Raises ValueError as `interval_s`."""

    failures_a_day: float = FAILURES_A_DAY
    turns_max: int = TURNS_MAX
    pause_s: float = PAUSE_S
    measured: int = 0

    def __post_init__(self) -> None:
        interval_s(self.pause_s, self.failures_a_day)
        if self.turns_max < 1:
            raise ValueError(f"turns_max is 1 or more, not {self.turns_max}")

    @property
    def interval_s(self) -> float:
        """Seconds of work between two checkpoints, by what is known now."""
        return interval_s(self.pause_s, self.failures_a_day)

    def due(self, *, elapsed_s: float, turns: int) -> bool:
        """Whether it is time, so long and so many turns after the last one."""
        return turns > 0 and (elapsed_s >= self.interval_s or turns >= self.turns_max)

    def took(self, pause_s: float) -> None:
        """Takes in how long a checkpoint held up the work."""
        first, pause_s = self.measured == 0, max(pause_s, PAUSE_S_MIN)
        self.pause_s = pause_s if first else NEWEST * pause_s + (1 - NEWEST) * self.pause_s
        self.measured += 1
