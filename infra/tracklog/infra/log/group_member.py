"""A group member on the embedded logs: ownership by turns (see group_table), records by a plain reader."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final, Protocol, TypeVar

from tracklog.infra.log import group_table
from tracklog.infra.log.group_table import GroupTable, Owner, Turn
from tracklog.infra.log.port import GroupListener, Record
from tracklog.schemas.errors import LogError

T = TypeVar("T")

POLL_INTERVAL_MAX_S: Final = 300.0
"""A member that has not polled for this long is taken for stuck and stops being kept alive (as Kafka's)."""


class GroupStore(Protocol):
    """Where the table of one group is kept, with atomic changes."""

    def read(self) -> GroupTable: ...

    def update(self, change: Callable[[GroupTable], T]) -> T: ...

    def keep_alive(self, member: EmbeddedMember) -> None:
        """Writes a heartbeat for the member in the background as long as `member.alive()`."""

    def forget(self, member: EmbeddedMember) -> None: ...


class AssignableReader(Protocol):
    def poll(self, max_records: int, timeout_s: float) -> list[Record]: ...
    def position(self, partition: int) -> int: ...
    def seek(self, partition: int, offset: int) -> None: ...
    def assign(self, partition: int, offset: int) -> None: ...
    def unassign(self, partition: int) -> None: ...
    def pause(self, partition: int) -> None: ...
    def resume(self, partition: int) -> None: ...
    def close(self) -> None: ...


class EmbeddedMember:
    """See `GroupMember`. `turn_interval_s`: how often the table is looked at, so how fast groups react."""

    def __init__(
        self,
        store: GroupStore,
        reader: AssignableReader,
        listener: GroupListener,
        *,
        partitions: int,
        session_s: float,
        turn_interval_s: float,
        monotonic_s: Callable[[], float] = time.monotonic,
        new_id: Callable[[], str] = lambda: secrets.token_hex(8),
    ) -> None:
        self.member_id = new_id()
        self._monotonic_s = monotonic_s
        self._store = store
        self._reader = reader
        self._listener = listener
        self._partitions = partitions
        self._session_s = session_s
        self._turn_interval_s = turn_interval_s
        self._owned: dict[int, Owner] = {}
        self._next_turn_s = 0.0
        self._polled_s = self._monotonic_s()
        self._closed = False
        store.keep_alive(self)

    def alive(self) -> bool:
        return not self._closed and self._monotonic_s() - self._polled_s < POLL_INTERVAL_MAX_S

    def poll(self, max_records: int, timeout_s: float) -> list[Record]:
        deadline = self._monotonic_s() + timeout_s
        while True:
            now = self._polled_s = self._monotonic_s()
            if now >= self._next_turn_s:
                self._turn()
                self._next_turn_s = self._monotonic_s() + self._turn_interval_s
            wait_s = min(deadline, self._next_turn_s) - self._monotonic_s()
            records = self._reader.poll(max_records, max(0.0, wait_s))
            if records or self._monotonic_s() >= deadline:
                return records

    def position(self, partition: int) -> int:
        return self._reader.position(partition)

    def seek(self, partition: int, offset: int) -> None:
        self._reader.seek(partition, offset)

    def commit(self, positions: Mapping[int, int]) -> None:
        owned = dict(self._owned)
        if positions.keys() & owned.keys():
            self._store.update(lambda table: group_table.commit(table, positions, owned))

    def committed(self, partitions: Sequence[int]) -> Mapping[int, int | None]:
        table = self._store.read()
        return {p: table.committed.get(p) for p in partitions}

    def pause(self, partitions: Sequence[int]) -> None:
        for partition in partitions:
            self._reader.pause(partition)

    def resume(self, partitions: Sequence[int]) -> None:
        for partition in partitions:
            self._reader.resume(partition)

    def close(self) -> None:
        if self._closed:
            return
        try:
            if self._owned:
                self._listener.revoked(tuple(sorted(self._owned)))
        finally:
            self._closed = True
            self._store.forget(self)
            with suppress(LogError):  # a log that is gone expires the member by its heartbeat
                self._store.update(lambda table: group_table.leave(table, self.member_id))
            self._owned.clear()
            self._reader.close()

    def _turn(self) -> None:
        seen = self._store.read()
        expected = seen.copy()
        turn = self._take(expected)
        if expected != seen:
            turn = self._store.update(self._take)
        self._apply(turn)

    def _take(self, table: GroupTable) -> Turn:
        return group_table.take_turn(
            table,
            self.member_id,
            self._owned,
            now_s=self._monotonic_s(),
            session_s=self._session_s,
            partitions=self._partitions,
        )

    def _apply(self, turn: Turn) -> None:
        if turn.lost:
            self._drop(turn.lost)
            self._listener.lost(turn.lost)
        if turn.revoked:
            self._listener.revoked(turn.revoked)
            returned = {p: self._owned[p] for p in turn.revoked}
            self._drop(turn.revoked)
            self._store.update(lambda table: group_table.hand_back(table, returned))
        if turn.gained:
            self._owned.update(turn.gained)
            starts = self._listener.assigned(tuple(sorted(turn.gained)))
            for partition in turn.gained:
                self._reader.assign(partition, starts[partition])

    def _drop(self, partitions: Sequence[int]) -> None:
        for partition in partitions:
            del self._owned[partition]
            self._reader.unassign(partition)
