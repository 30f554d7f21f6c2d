"""An agent that makes the same call again and again, and gets nowhere (DESIGN §7)."""

from __future__ import annotations

from collections.abc import Iterable

from tracklog.schemas.errors import Stuck
from tracklog.schemas.values import ToolCall

__all__ = ["Repeats"]


class Repeats:
    """Counts calls of the same tool with the same arguments in a row, in the order of the replies.

    Replies up to the seq `since` do not count: there somebody said that it may go on.
    """

    def __init__(self, most: int | None, since: int) -> None:
        self._most = most
        self._since = since
        self._last: tuple[str, str] | None = None
        self._count = 0

    def take(self, seq: int, calls: Iterable[ToolCall]) -> None:
        """The calls of the reply at this seq."""
        if seq <= self._since:
            return
        for call in calls:
            same = (call.tool, call.arguments) == self._last
            self._count = self._count + 1 if same else 1
            self._last = (call.tool, call.arguments)

    @property
    def too_many(self) -> bool:
        return self._most is not None and self._count > self._most

    def stuck(self) -> Stuck:
        """The error for too many."""
        tool = self._last[0] if self._last is not None else ""
        return Stuck(
            f"the model asked for the same call of {tool} {self._count} times in a row",
            hint="look at what the tool answers; then `tracklog retry`, or raise worker.repeats_max",
        )
