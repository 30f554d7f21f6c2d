"""Reading what is folded: trajectories by filter and page, one by id, its events, totals, calls that wait for a person.

    reader = Reader(client, prefix="tracklog", log=log)
    page = await reader.states(Filter(status="running"))
    page.value.trajectories, page.as_of        # what is there, and how far it is folded
    await reader.behind(page.as_of)            # records of the log that are not in it yet, by partition

What is read comes from Redis, from the version that the projection's pointer names at that moment, and may be behind
the log. Who has written something and wants to find it waits for it, never longer than a bound:

    written = reader.seeing({position.partition: position.offset})
    await written.state("run-1")
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Any, Final, NamedTuple, TypeVar

from tracklog.consumers import read_totals
from tracklog.consumers.read_builtin import (
    Doubted,
    Meter,
    Still,
    ToolTotals,
    doubted_of,
    meters_of,
    still_of,
    tool_totals_of,
)
from tracklog.consumers.read_events import (
    Kept,
    Standing,
    accepted_of,
    kept_in_redis,
    missing_before,
    scanned,
    standings_in_redis,
)
from tracklog.consumers.read_filter import Cursor, Filter
from tracklog.consumers.read_live import (
    LOG,
    Answer,
    AsOf,
    Pinned,
    all_of,
    checkpoints,
    found_live,
    looked,
    one_of,
    positions_of,
)
from tracklog.consumers.read_totals import Entries, EntryPlace, Listed
from tracklog.consumers.read_walk import walked
from tracklog.consumers.waiting import WaitingPage, waiting_in_redis
from tracklog.infra.log.partitioner import partition_of
from tracklog.infra.log.port import Log, Record
from tracklog.infra.log.trimmed import check_beginning
from tracklog.infra.redis_client import RedisClient
from tracklog.infra.redis_script import ask
from tracklog.processors import agenda, trajectories
from tracklog.processors.builtin.activity import MINUTE_MS, Activity
from tracklog.processors.builtin.doubts import Doubts
from tracklog.processors.builtin.drift import Drift
from tracklog.processors.builtin.pace import Paces
from tracklog.processors.builtin.spend import Spend
from tracklog.processors.builtin.tool_stats import ToolStats
from tracklog.processors.indexes import BY_TIME, by_status
from tracklog.processors.processor import Seen, Shape
from tracklog.processors.redis_store import LiveKeys
from tracklog.processors.trajectory import STATUSES, Trajectory, trajectory_from
from tracklog.processors.writes import own_fields
from tracklog.schemas.errors import RangeError, ReadBehind, StoreError
from tracklog.schemas.topics import Topics

__all__ = ["Answer", "AsOf", "Cursor", "Entries", "Filter", "Kept", "Listed", "Page", "Reader"]

T = TypeVar("T")

PAGE_MAX: Final = 1000
READS_AT_ONCE: Final = 8
"""Threads in which a reader and those made of it wait for Redis."""
WAIT_S: Final = 5.0
"""How long a position is waited for when nothing else is said."""
PAUSE_S: Final = (0.002, 0.05)
"""Between two looks at how far it is folded: the first one, and the longest."""

_TRAJECTORIES: Final = Pinned(trajectories.NAME)
_AGENDA: Final = Pinned(agenda.NAME, agenda.VERSION)


class Page(NamedTuple):
    """Trajectories, newest append first. `next` starts the page after this one; None when there is none."""

    trajectories: list[Trajectory]
    next: Cursor | None


class Reader:
    """Reads the projections of one installation, from any event loop. Every method may raise StoreUnavailable,
    StoreError (also where nothing is folded yet), and ReadBehind of a reader that has positions to see. `log`: for what
    Redis does not keep."""

    def __init__(self, client: RedisClient, *, prefix: str, log: Log | None = None) -> None:
        self._client = client
        self._topics = Topics(prefix)
        self._log = log
        self._threads = ThreadPoolExecutor(READS_AT_ONCE, "tracklog-read")
        self._seen: Mapping[int, int] = {}
        self._wait_s = WAIT_S

    def seeing(self, positions: Mapping[int, int], *, wait_s: float = WAIT_S) -> Reader:
        """A reader each of whose answers has the records at these offsets, by partition of the events topic, in it.

        It waits for them `wait_s` seconds at most, then raises ReadBehind.
        """
        one = Reader.__new__(Reader)
        one._client, one._topics, one._log, one._threads = self._client, self._topics, self._log, self._threads
        one._seen, one._wait_s = dict(positions), wait_s
        return one

    async def state(self, trajectory_id: str) -> Answer[Trajectory | None]:
        """One trajectory; None when none of its records was folded."""

        def look(live: LiveKeys) -> Trajectory | None:
            partition = partition_of(trajectory_id.encode(), live.partitions)
            (fields,) = ask(self._client, [("HGETALL", live.keys.key(partition, own_fields(trajectory_id)))])
            return trajectory_from(fields) if fields else None

        return await self._look(_TRAJECTORIES, look, one_of(trajectory_id))

    async def states(self, filter: Filter | None = None, cursor: Cursor | None = None, limit: int = 50) -> Answer[Page]:
        """A page of at most `limit` (and PAGE_MAX) trajectories that pass all of the filter, newest append first.

        The cursor is a place in the order, not a snapshot: a trajectory that gets an event moves to the front,
        so it may be missed by pages that follow, and none is shown twice.
        """
        wanted, limit = filter if filter is not None else Filter(), _limited(limit)
        return await self._look(_TRAJECTORIES, lambda live: self._page(live, wanted, cursor, limit))

    def _page(self, live: LiveKeys, wanted: Filter, cursor: Cursor | None, limit: int) -> Page:
        relative = wanted.index_keys()
        keys = {p: [live.keys.key(p, key) for key in relative] for p in all_of(live)}
        found = list(islice(walked(self._client, keys, wanted, cursor, limit + 1), limit + 1))
        page = found[:limit]
        own = [live.keys.key(p, own_fields(entry.trajectory_id)) for p, entry in page]
        rows = [trajectory_from(fields) for fields in ask(self._client, [("HGETALL", key) for key in own]) if fields]
        return Page(rows, page[-1][1] if len(found) > limit else None)

    async def standings(self, trajectory_ids: Iterable[str]) -> Answer[dict[str, Standing]]:
        """Agent and status of those of these trajectories that are folded."""
        ids = list(trajectory_ids)
        return await self._look(_TRAJECTORIES, lambda live: standings_in_redis(self._client, live, ids))

    async def counts(self) -> Answer[dict[str, int]]:
        """Trajectories by status, and `all`."""
        names = {"all": BY_TIME, **{word: by_status(word) for word in STATUSES}}

        def look(live: LiveKeys) -> dict[str, int]:
            commands = [("ZCARD", live.keys.key(p, key)) for key in names.values() for p in all_of(live)]
            sizes = iter(ask(self._client, commands))
            return {name: sum(islice(sizes, live.partitions)) for name in names}

        return await self._look(_TRAJECTORIES, look)

    async def kept(self, trajectory_id: str) -> Answer[Kept]:
        """The newest records of a trajectory as Redis keeps them, whatever their verdict."""
        topic = self._topics.events
        return await self._look(
            _TRAJECTORIES, lambda live: kept_in_redis(self._client, live, topic, trajectory_id), one_of(trajectory_id)
        )

    async def records(self, trajectory_id: str) -> Answer[list[Record]]:
        """All records of a trajectory as the log holds them, whatever their verdict.

        From Redis where it keeps them all. What it no longer keeps, and trajectories that it does not know (or while it
        is away), are read from the log, which costs a scan of a partition; the source is LOG then. Raises StoreError
        without a log.
        """
        try:
            kept = await self.kept(trajectory_id)
        except ReadBehind:
            raise
        except StoreError:
            if self._log is None:
                raise
            return await self._scanned(trajectory_id)
        if kept.value.complete and kept.value.records:
            return Answer(kept.value.records, kept.as_of)
        if self._log is None and kept.value.offsets:
            raise StoreError(
                f"Redis keeps {len(kept.value.records)} of the {len(kept.value.offsets)} records of {trajectory_id!r}",
                hint="the others are in the log: give the reader one",
            )
        if self._log is None or not kept.value.offsets:
            return await self._scanned(trajectory_id) if self._log is not None else Answer([], kept.as_of)
        ((partition, position),) = kept.as_of.positions.items()
        older = await self._run(missing_before, self._log, self._topics.events, partition, kept.value, position)
        return Answer([*older, *kept.value.records], AsOf(LOG, kept.as_of.positions))

    async def events(self, trajectory_id: str, *, after_seq: int = -1, limit: int = PAGE_MAX) -> Answer[list[Seen]]:
        """The accepted events of a trajectory behind a seq, in order, each with its record; sources as `records`.

        Raises TrajectoryTrimmed where its beginning may have been trimmed.
        """
        found = await self.records(trajectory_id)
        accepted = await self._run(accepted_of, trajectory_id, found.value, after_seq, limit)
        if not accepted and after_seq < 0 and self._log is not None:
            await self._run(check_beginning, self._log, self._topics.events, trajectory_id)
        return Answer(accepted, found.as_of)

    async def waiting(
        self, kind: str, *, tenant: str | None = None, cursor: str | None = None, limit: int = 50
    ) -> Answer[WaitingPage]:
        """A page of calls that wait for a person (`agenda.ASKED`: held ones; `agenda.DOUBTED`: those that may have
        happened), the one that waits longest first. `tracklog route` folds them. Raises RangeError for what is no
        cursor."""
        return await self._look(
            _AGENDA, lambda live: waiting_in_redis(self._client, live, kind, tenant=tenant, cursor=cursor, limit=limit)
        )

    # What views keep: any, by the layout it declares; and those that come with Tracklog.

    async def shape(self, name: str, key: str) -> Shape:
        """What a key of a projection is, by the layout it declares. Raises InputError."""
        return (await self._look(Pinned(name), lambda live: read_totals.shape_of(self._client, live, key))).value

    async def totals(self, name: str, key: str) -> Answer[dict[str, int]]:
        """A hash of numbers, counters or a sorted set of a projection, summed over partitions. Raises InputError."""
        return await self._look(Pinned(name), lambda live: read_totals.totals(self._client, live, key))

    async def parts(self, name: str, key: str) -> Answer[dict[int, Any]]:
        """A JSON key, or a hash as text, by partition. Raises InputError."""
        return await self._look(Pinned(name), lambda live: read_totals.parts(self._client, live, key))

    async def ranked(
        self, name: str, key: str, *, lowest_first: bool = False, cursor: Cursor | None = None, limit: int = 50
    ) -> Answer[Listed]:
        """A page of a sorted set of a projection. Raises InputError."""
        limit = _limited(limit)
        return await self._look(
            Pinned(name),
            lambda live: read_totals.ranked(
                self._client, live, key, lowest_first=lowest_first, cursor=cursor, limit=limit
            ),
        )

    async def entries(
        self, name: str, key: str, *, cursor: EntryPlace | None = None, limit: int = 50
    ) -> Answer[Entries]:
        """A page of a stream of a projection, newest first. Raises InputError."""
        limit = _limited(limit)
        return await self._look(
            Pinned(name), lambda live: read_totals.entries(self._client, live, key, cursor=cursor, limit=limit)
        )

    async def keys(self, name: str, start: str = "") -> Answer[list[str]]:
        """The keys of a projection that begin so. Looks at every key in Redis: for people."""
        return await self._look(Pinned(name), lambda live: read_totals.key_names(self._client, live, start))

    async def spend(self, day: str, *, tenant: str | None = None) -> Answer[dict[str, Meter]]:
        """Calls, tokens and money of a day (YYYY-MM-DD, UTC) by `TENANT|MODEL`, of all tenants or of one."""
        found = await self.totals(Spend.name, f"meter:{day}")
        return Answer(meters_of(found.value, tenant), found.as_of)

    async def tool_stats(self, tool: str) -> Answer[ToolTotals]:
        """How a tool does."""
        found = await self.totals(ToolStats.name, f"tool:{tool}")
        return Answer(tool_totals_of(found.value), found.as_of)

    async def activity(self, at_ms: int) -> Answer[dict[str, int]]:
        """Events by type of the minute (UTC) that a time is in, milliseconds since 1970."""
        return await self.totals(Activity.name, f"minute:{at_ms // MINUTE_MS * MINUTE_MS}")

    async def in_doubt(self, limit: int = 50) -> Answer[list[Doubted]]:
        """Calls in doubt or with a person, those that wait longest first."""
        found = await self.ranked(Doubts.name, "open", lowest_first=True, limit=limit)
        return Answer(doubted_of(found.value.rows), found.as_of)

    async def still(self, limit: int = 50) -> Answer[list[Still]]:
        """Trajectories that somebody owns, those first whose last event is the oldest: the stuck ones."""
        found = await self.ranked(Paces.name, "moving", lowest_first=True, limit=limit)
        return Answer(still_of(found.value.rows), found.as_of)

    async def looping(self, limit: int = 50) -> Answer[dict[str, int]]:
        """Trajectories that propose the same calls again and again, and how often; most often first."""
        found = await self.ranked(Paces.name, "looping", limit=limit)
        return Answer({one.member: one.score for one in found.value.rows}, found.as_of)

    async def drift(self, *, cursor: EntryPlace | None = None, limit: int = 50) -> Answer[Entries]:
        """What changed when: models, prompts and tools that trajectories crossed over to."""
        return await self.entries(Drift.name, "changes", cursor=cursor, limit=limit)

    # How far it is folded.

    async def as_of(self, name: str = trajectories.NAME) -> AsOf:
        """How far a projection is folded: the next offset of every partition, 0 where nothing is yet."""
        return (await self._look(_pinned(name), lambda _: None)).as_of

    async def behind(self, as_of: AsOf) -> dict[int, int]:
        """Records of the log that are not in an answer, by partition; holes of the log count too. Raises StoreError
        without a log."""
        log = self._log
        if log is None:
            raise StoreError("only the log says how far an answer is behind it", hint="give the reader a log")
        topic, positions = self._topics.events, as_of.positions
        ends = await self._run(lambda: {p: log.bounds(topic, p).end for p in positions})
        return {p: max(0, end - positions[p]) for p, end in ends.items()}

    async def _look(
        self, pinned: Pinned, look: Callable[[LiveKeys], T], chosen: Callable[[LiveKeys], Iterable[int]] = all_of
    ) -> Answer[T]:
        await self._wait(pinned)
        return await self._run(looked, self._client, self._topics.prefix, pinned, look, chosen)

    async def _wait(self, pinned: Pinned) -> None:
        """Until the positions that are to be seen are folded. Raises ReadBehind, RangeError."""
        if not self._seen:
            return
        loop = asyncio.get_running_loop()
        deadline_s, pause_s = loop.time() + self._wait_s, PAUSE_S[0]
        while True:
            late = loop.time() >= deadline_s
            missing = await self._run(self._missing, pinned, late)
            if missing is None:
                return
            if late:
                raise missing
            await asyncio.sleep(min(pause_s, max(0.0, deadline_s - loop.time())))
            pause_s = min(2 * pause_s, PAUSE_S[1])

    def _missing(self, pinned: Pinned, late: bool) -> StoreError | None:
        """What is not folded yet, in words; None when all is."""
        try:
            live = found_live(self._client, self._topics.prefix, pinned)
        except StoreError as error:
            return error
        present = positions_of(checkpoints(self._client, live.keys, all_of(live)))
        for partition, wanted in sorted(self._seen.items()):
            if partition not in present:
                raise RangeError(
                    f"there is no partition {partition} to be seen; {self._topics.events} has {live.partitions}"
                )
            if present[partition] <= wanted:
                return self._behind(pinned.name, partition, wanted, present[partition], late)
        return None

    def _behind(self, name: str, partition: int, wanted: int, present: int, late: bool) -> ReadBehind:
        end = self._log.bounds(self._topics.events, partition).end if late and self._log is not None else None
        folds = "route" if name == agenda.NAME else "process"
        hint = f"is `tracklog {folds}` running?"
        if end is not None and end <= wanted:
            hint = f"the log itself ends at offset {end}: nothing is there yet"
        return ReadBehind(
            f"{name} is folded to offset {present} of partition {partition}, and offset {wanted} was to be seen: waited"
            f" {self._wait_s:g} s",
            hint=hint,
            details={"partition": partition, "wanted": wanted, "present": present},
        )

    async def _scanned(self, trajectory_id: str) -> Answer[list[Record]]:
        found, partition, end = await self._run(scanned, self._log, self._topics.events, trajectory_id)
        return Answer(found, AsOf(LOG, {partition: end}))

    async def _run(self, call: Callable[..., T], *arguments: Any) -> T:
        """In one of this reader's threads: those of the event loop may all wait for something else."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, call, *arguments)


def _pinned(name: str) -> Pinned:
    return _AGENDA if name == agenda.NAME else Pinned(name)


def _limited(limit: int) -> int:
    return max(1, min(limit, PAGE_MAX))
