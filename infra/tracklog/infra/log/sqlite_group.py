"""The table of one group as rows of the file, and the heartbeats of this process's members."""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

from tracklog.infra.log.group_member import EmbeddedMember
from tracklog.infra.log.group_table import GroupTable, Owner

if TYPE_CHECKING:
    from tracklog.infra.log.sqlite import SqliteLog

T = TypeVar("T")
K = TypeVar("K")

logger = logging.getLogger(__name__)

_UPDATE_TIMEOUT_S: Final = 15.0
"""Covers a busy time-out of the file, so that the cause is reported and not this bound."""


class Heartbeats:
    """Keeps the members of this process alive, on the writer's thread: a frozen process falls silent."""

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._lock = threading.Lock()
        self._members: dict[str, EmbeddedMember] = {}
        self._next_s = 0.0

    def add(self, member: EmbeddedMember) -> None:
        with self._lock:
            self._members[member.member_id] = member

    def remove(self, member: EmbeddedMember) -> None:
        with self._lock:
            self._members.pop(member.member_id, None)

    def beat(self, connection: sqlite3.Connection) -> None:
        now_s = time.monotonic()
        if now_s < self._next_s:
            return
        self._next_s = now_s + self._interval_s
        with self._lock:
            alive = [(now_s, member_id) for member_id, member in self._members.items() if member.alive()]
        if not alive:
            return
        try:
            connection.executemany("UPDATE group_members SET heartbeat_s = ? WHERE member = ?", alive)
        except sqlite3.OperationalError as error:
            logger.warning("no heartbeat could be written for %d group members: %s", len(alive), error)


class SqliteGroup:
    """See `GroupStore`."""

    def __init__(self, log: SqliteLog, heartbeats: Heartbeats, group_id: str, topic: str) -> None:
        self._log = log
        self._heartbeats = heartbeats
        self._key = (group_id, topic)

    def read(self) -> GroupTable:
        return self._log.look(self._load)

    def update(self, change: Callable[[GroupTable], T]) -> T:
        def apply(connection: sqlite3.Connection) -> T:
            before = self._load(connection)
            after = before.copy()
            result = change(after)
            self._save(connection, before, after)
            return result

        return self._log.run(apply, _UPDATE_TIMEOUT_S)

    def keep_alive(self, member: EmbeddedMember) -> None:
        self._heartbeats.add(member)

    def forget(self, member: EmbeddedMember) -> None:
        self._heartbeats.remove(member)

    def _load(self, connection: sqlite3.Connection) -> GroupTable:
        def rows(columns: str, table: str) -> list[Any]:
            statement = f"SELECT {columns} FROM {table} WHERE group_id = ? AND topic = ?"
            return connection.execute(statement, self._key).fetchall()

        generation = rows("generation", "groups")
        return GroupTable(
            generation=generation[0][0] if generation else 0,
            heartbeats=dict(rows("member, heartbeat_s", "group_members")),
            owners={p: Owner(m, g) for p, m, g in rows("partition, member, generation", "group_owners")},
            committed=dict(rows("partition, next_offset", "group_offsets")),
        )

    def _save(self, connection: sqlite3.Connection, before: GroupTable, after: GroupTable) -> None:
        if after.generation != before.generation:
            connection.execute("INSERT OR REPLACE INTO groups VALUES (?, ?, ?)", (*self._key, after.generation))
        self._save_rows(connection, "group_members", "member", before.heartbeats, after.heartbeats)
        self._save_rows(connection, "group_owners", "partition", before.owners, after.owners)
        self._save_rows(connection, "group_offsets", "partition", before.committed, after.committed)

    def _save_rows(
        self,
        connection: sqlite3.Connection,
        table: str,
        key_column: str,
        before: Mapping[K, Owner | float],
        after: Mapping[K, Owner | float],
    ) -> None:
        gone = [(*self._key, key) for key in before if key not in after]
        new = [
            (*self._key, key, *(value if isinstance(value, Owner) else (value,)))
            for key, value in after.items()
            if before.get(key) != value
        ]
        connection.executemany(f"DELETE FROM {table} WHERE group_id = ? AND topic = ? AND {key_column} = ?", gone)
        if new:
            marks = ", ".join("?" * len(new[0]))
            connection.executemany(f"INSERT OR REPLACE INTO {table} VALUES ({marks})", new)
