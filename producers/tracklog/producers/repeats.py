"""An agent that makes the same call again and again, and gets nowhere (DESIGN §7)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Final, NamedTuple

from tracklog.schemas.errors import Stuck
from tracklog.schemas.values import ToolCall

__all__ = ["NOT_REPEATED", "Repeated", "Repeats"]


class Repeated(NamedTuple):
    """The last call, and how often in a row it was asked for. `digest`: of its arguments."""

    tool: str = ""
    digest: str = ""
    times: int = 0


NOT_REPEATED: Final = Repeated()


class Repeats:
    """Counts calls of the same tool with the same arguments in a row, in the order of the replies.

    Replies up to the seq `since` do not count: there somebody said that it may go on.
    """

    def __init__(self, most: int | None, since: int) -> None:
        self._most = most
        self._since = since
        self.kept = NOT_REPEATED

    def recall(self, until: int, kept: Repeated) -> None:
        """Takes in what was counted up to this seq, before a checkpoint."""
        if until > self._since:
            self.kept = kept

    def take(self, seq: int, calls: Iterable[ToolCall]) -> None:
        """The calls of the reply at this seq."""
        if seq <= self._since:
            return
        for call in calls:
            digest = hashlib.sha256(call.arguments.encode("utf-8", "replace")).hexdigest()
            same = (call.tool, digest) == self.kept[:2]
            self.kept = Repeated(call.tool, digest, self.kept.times + 1 if same else 1)

    @property
    def too_many(self) -> bool:
        return self._most is not None and self.kept.times > self._most

    def stuck(self) -> Stuck:
        """The error for too many."""
        return Stuck(
            f"the model asked for the same call of {self.kept.tool} {self.kept.times} times in a row",
            hint="look at what the tool answers; then `tracklog retry`, or raise worker.repeats_max",
        )
