"""What owners refused, in pages from Redis, newest first: from the processor `refused`. With it goes what has the
identity of another record and says something else, which whoever sent it takes for said.

What else nobody will ever take (`refusals`) no event is about: it is in the log alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from tracklog.consumers.read import Answer, Cursor, Reader
from tracklog.consumers.read_totals import Ranked
from tracklog.consumers.refusals import Reason, Refusal, reason_of
from tracklog.processors.builtin.refused import Refused, record_of
from tracklog.schemas.lifecycle import ENDED, TrajectoryStatus
from tracklog.schemas.spawn import FROM

__all__ = ["OF_OWNERS", "RefusedPage", "refused_page"]

READ_AHEAD: Final = 200
OF_OWNERS: Final = frozenset(
    {Reason.ENDED, Reason.NOT_OPEN, Reason.OTHER_INTENT, Reason.ALREADY, Reason.MAY_NOT, Reason.UNFIT, Reason.OTHER}
)
"""Reasons of theirs; the others are found in the log only."""
_ENDED: Final = frozenset(one.value for one in ENDED)


class RefusedPage(NamedTuple):
    """`next` is the cursor of the page behind this one; None at the end. `since_ms` to `until_ms` (exclusive): of when
    its rows are; None: no bound."""

    rows: list[Refusal]
    next: str | None
    since_ms: int | None = None
    until_ms: int | None = None

    def joined(self, others: Iterable[Refusal]) -> RefusedPage:
        """With those of others that belong here by their time: each is on one page. It may be longer then."""
        low, high = self.since_ms, self.until_ms
        mine = [one for one in others if (low or 0) <= one.timestamp_ms and (high is None or one.timestamp_ms < high)]
        return self._replace(rows=sorted((*self.rows, *mine), key=lambda one: one.timestamp_ms, reverse=True))


async def refused_page(
    reader: Reader,
    wanted: Callable[[Refusal], bool],
    *,
    tenant: str | None,
    since_ms: int | None,
    cursor: str | None,
    limit: int,
) -> Answer[RefusedPage]:
    """At most `limit` that are wanted, none from before `since_ms`. Raises NotFolded; RangeError for what is no
    cursor."""
    key = "all" if tenant is None else f"all:{tenant}"
    start = None if cursor is None else Cursor.of(cursor)
    rows, first, until_ms = list[Refusal](), None, None if start is None else start.last_ms
    while True:
        page = await reader.ranked(Refused.name, key, cursor=start, limit=READ_AHEAD)
        first = page.as_of if first is None else first  # the least that all pages have in them
        idle = await _so_anyway(reader, page.value.rows)
        for one in page.value.rows:
            if since_ms is not None and one.score < since_ms:
                return Answer(RefusedPage(rows, None, since_ms, until_ms), first)
            refusal = _refusal(one)
            if one.member not in idle and wanted(refusal):
                rows.append(refusal)
                if len(rows) == limit:
                    following = Cursor(one.score, one.member).token()
                    return Answer(RefusedPage(rows, following, one.score, until_ms), first)
        if page.value.next is None:
            return Answer(RefusedPage(rows, None, since_ms, until_ms), first)
        start = page.value.next


async def _so_anyway(reader: Reader, rows: Iterable[Ranked]) -> set[str]:
    """Members that kept nobody from anything: a cancel of what was cancelled, and what a parent or a child said to one
    that had ended."""
    found = {one.member: record_of(one.member) for one in rows}
    asked = {member: one for member, one in found.items() if one.kind in ("Cancel", "Outcome")}
    if not asked:
        return set()
    standings = (await reader.standings({one.trajectory_id for one in asked.values()})).value
    idle = set()
    for member, one in asked.items():
        standing = standings.get(one.trajectory_id)
        has_ended = standing is None or standing.status in _ENDED  # one that Redis no longer has, has
        cancelled = standing is not None and standing.status == TrajectoryStatus.CANCELLED.value
        if (has_ended and one.source.startswith(FROM)) or (one.kind == "Cancel" and cancelled):
            idle.add(member)
    return idle


def _refusal(one: Ranked) -> Refusal:
    read = record_of(one.member)
    return Refusal(
        read.trajectory_id,
        read.tenant,
        read.kind,
        read.source,
        read.source_seq,
        "",
        reason_of(read.words),
        read.words,
        "inbox",
        one.partition,
        read.inbox_offset,
        read.seq,
        None,
        read.at_ms,
    )
