"""What goes on right now, in one look, from what processors keep in Redis. What is not folded is None, never 0."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, TypeVar

from tracklog.consumers.listing import row_of
from tracklog.consumers.read import Answer, Filter, Reader
from tracklog.consumers.read_builtin import Doubted, Meter, Still
from tracklog.processors.agenda import ASKED
from tracklog.processors.builtin.activity import MINUTE_MS
from tracklog.schemas.errors import NotFolded

__all__ = ["Overview", "overview"]

T = TypeVar("T")

RUNNING_MAX: Final = 20
"""Trajectories in the table: those that moved last."""
LISTED_MAX: Final = 10


class Overview(NamedTuple):
    """`counts` by status, and `all`; `running` as `tracklog list` gives rows; `still` those that moved longest ago;
    `last_minute` events by type of the last whole minute; `today` by tenant and model."""

    as_of: Mapping[int, int]
    counts: Mapping[str, int]
    running: list[dict[str, Any]]
    doubted: list[Doubted] | None
    approvals: int | None
    still: list[Still] | None
    looping: Mapping[str, int] | None
    last_minute: Mapping[str, int] | None
    today: Mapping[str, Meter] | None

    def as_map(self) -> dict[str, Any]:
        """As `--json` shows it."""
        found = self._asdict()
        found["as_of"] = {str(partition): offset for partition, offset in self.as_of.items()}
        found["doubted"] = None if self.doubted is None else [one._asdict() for one in self.doubted]
        found["still"] = None if self.still is None else [one._asdict() for one in self.still]
        found["today"] = None if self.today is None else {name: one._asdict() for name, one in self.today.items()}
        return found


async def overview(reader: Reader, now_ms: int) -> Overview:
    """Raises NotFolded when nothing is folded yet, StoreUnavailable."""
    page = await reader.states(Filter(status="running"), None, RUNNING_MAX)
    day = str(datetime.fromtimestamp(now_ms / 1000, UTC).date())
    held = await _folded(reader.waiting(ASKED, limit=1))
    return Overview(
        page.as_of.positions,
        (await reader.counts()).value,
        [row_of(one) for one in page.value.trajectories],
        await _folded(reader.in_doubt(LISTED_MAX)),
        None if held is None else held.total,
        await _folded(reader.still(LISTED_MAX)),
        await _folded(reader.looping(LISTED_MAX)),
        await _folded(reader.activity(now_ms - MINUTE_MS)),
        await _folded(reader.spend(day)),
    )


async def _folded(asked: Coroutine[Any, Any, Answer[T]]) -> T | None:
    """None where nobody has folded it."""
    try:
        return (await asked).value
    except NotFolded:
        return None
