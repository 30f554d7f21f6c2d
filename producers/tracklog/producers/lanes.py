"""Lanes: small numbers for things that are open side by side and answered from outside in any order.

A trajectory's state keeps one number for each source of its inbox, the highest that was taken. What is answered in any
order so needs more sources than one, and few: the things of one lane come one after the other, and their answers are
numbered by the seq of the event that opened them.
"""

from __future__ import annotations

from collections.abc import Mapping

from tracklog.schemas.lifecycle import EXT_LANE, lane_of

__all__ = ["Lanes"]


class Lanes:
    """Of the open things of one kind, by name."""

    def __init__(self) -> None:
        self._open: dict[str, int] = {}

    def recall(self, name: str, ext: Mapping[str, str]) -> None:
        """Takes in one that is open in the record."""
        self._open[name] = lane_of(ext)

    def free(self, name: str) -> None:
        self._open.pop(name, None)

    def ext(self, name: str) -> Mapping[str, str]:
        """For the event that opens one: the smallest number that no open one has."""
        taken = set(self._open.values())
        lane = next(one for one in range(len(taken) + 1) if one not in taken)
        self._open[name] = lane
        return {EXT_LANE: str(lane)}
