"""Reading the projection: trajectories by filter and page, one by id, its kept records, and how far behind it is.

Everything comes from Redis, from the version that the projection's pointer names at that moment. What is read may
be behind the log: `as_of` says how far it is folded.
"""

from __future__ import annotations

from itertools import islice
from typing import Final, NamedTuple

from tracklog.consumers.read_filter import Cursor, Filter
from tracklog.consumers.read_walk import newest_first
from tracklog.infra.log.partitioner import partition_of
from tracklog.infra.log.port import Record
from tracklog.infra.redis_client import RedisClient
from tracklog.infra.redis_script import ask
from tracklog.processors import trajectories
from tracklog.processors.indexes import BY_TIME, by_status
from tracklog.processors.redis_store import LiveKeys, checkpoint_of, live_keys
from tracklog.processors.store import Checkpoint
from tracklog.processors.store_keys import StoreKeys
from tracklog.processors.trajectory import STATUSES, Trajectory, trajectory_from
from tracklog.processors.warm_log import decode_entry, decode_offsets, log_key, offsets_key
from tracklog.processors.writes import own_fields
from tracklog.schemas.errors import StoreError
from tracklog.schemas.topics import Topics

__all__ = ["Cursor", "Filter", "Kept", "Page", "Reader"]

PAGE_MAX: Final = 1000


class Page(NamedTuple):
    """Trajectories, newest append first. `next` starts the page after this one; None when there is none."""

    trajectories: list[Trajectory]
    next: Cursor | None


class Kept(NamedTuple):
    """The records of one trajectory that Redis keeps, in log order. `complete` when none is missing before them;
    else `offsets` says where all of them lie."""

    records: list[Record]
    complete: bool
    offsets: list[int]


class Reader:
    """Reads the built-in projection of one installation. Every method may raise StoreUnavailable and StoreError."""

    def __init__(self, client: RedisClient, *, prefix: str) -> None:
        self._client = client
        self._topics = Topics(prefix)

    def live(self) -> LiveKeys:
        """Raises StoreError when nothing has been folded yet."""
        found = live_keys(self._client, self._topics.prefix, trajectories.NAME)
        if found is None:
            raise StoreError(
                f"Redis holds no projection {trajectories.NAME!r} under the prefix {self._topics.prefix!r}",
                hint="fold the log with `tracklog process --once`, or keep `tracklog process` running",
            )
        return found

    def state(self, trajectory_id: str) -> Trajectory | None:
        """One trajectory; None when none of its records was folded."""
        keys, partition = self._place(trajectory_id)
        (fields,) = ask(self._client, [("HGETALL", keys.key(partition, own_fields(trajectory_id)))])
        return trajectory_from(fields) if fields else None

    def states(self, filter: Filter | None = None, cursor: Cursor | None = None, limit: int = 50) -> Page:
        """A page of at most `limit` (and PAGE_MAX) trajectories that pass all of the filter, newest append first.

        The cursor is a place in the order, not a snapshot: a trajectory that gets an event moves to the front,
        so it may be missed by pages that follow, and none is shown twice.
        """
        live = self.live()
        wanted = filter if filter is not None else Filter()
        limit = max(1, min(limit, PAGE_MAX))
        relative = wanted.index_keys()
        keys = {p: [live.keys.key(p, key) for key in relative] for p in range(live.partitions)}
        found = list(islice(newest_first(self._client, keys, wanted, cursor, limit + 1), limit + 1))
        page = found[:limit]
        own = [live.keys.key(p, own_fields(entry.trajectory_id)) for p, entry in page]
        rows = [trajectory_from(fields) for fields in ask(self._client, [("HGETALL", key) for key in own]) if fields]
        return Page(rows, page[-1][1] if len(found) > limit else None)

    def events(self, trajectory_id: str, *, topic: str = "") -> Kept:
        """The newest records of a trajectory as the log holds them, whatever their verdict."""
        keys, partition = self._place(trajectory_id)
        entries, offsets, first = ask(
            self._client,
            [
                ("LRANGE", keys.key(partition, log_key(trajectory_id)), 0, -1),
                ("GET", keys.key(partition, offsets_key(trajectory_id))),
                ("HGET", keys.key(partition, own_fields(trajectory_id)), "first_offset"),
            ],
        )
        name, key = topic or self._topics.events, trajectory_id.encode()
        records = [decode_entry(entry, name, partition, key) for entry in entries]
        complete = first is None or (bool(records) and records[0].offset == int(first))
        return Kept(records, complete, decode_offsets(offsets or b""))

    def as_of(self) -> dict[int, int]:
        """How far the log is folded: the next offset of every partition, 0 where nothing is yet."""
        return {p: 0 if one is None else one.position for p, one in self.checkpoints().items()}

    def checkpoints(self) -> dict[int, Checkpoint | None]:
        live = self.live()
        commands = [("HMGET", live.keys.checkpoint(p), *Checkpoint._fields) for p in range(live.partitions)]
        return {p: checkpoint_of(answer) for p, answer in enumerate(ask(self._client, commands))}

    def counts(self) -> dict[str, int]:
        """Trajectories by status, and `all`."""
        live = self.live()
        names = {"all": BY_TIME, **{word: by_status(word) for word in STATUSES}}
        commands = [("ZCARD", live.keys.key(p, key)) for key in names.values() for p in range(live.partitions)]
        sizes = iter(ask(self._client, commands))
        return {name: sum(islice(sizes, live.partitions)) for name in names}

    def _place(self, trajectory_id: str) -> tuple[StoreKeys, int]:
        live = self.live()
        return live.keys, partition_of(trajectory_id.encode(), live.partitions)
