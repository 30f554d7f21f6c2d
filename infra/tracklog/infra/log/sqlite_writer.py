"""The one thread of a process that writes to the file: it commits whatever has queued, in one transaction.

Other work that writes (topics, groups, deletions) runs on it too, as jobs, so that the threads of a process
never wait for each other inside SQLite's busy handler, which sleeps.
"""

from __future__ import annotations

import sqlite3
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from tracklog.infra.log.port import Delivered, Position
from tracklog.infra.log.sqlite_schema import SPAN, connect, primary_code, read_error
from tracklog.schemas.errors import (
    AppendError,
    AppendRefused,
    AppendUnknown,
    ClientFatal,
    LogQueueFull,
    LogUnavailable,
)

T = TypeVar("T")
Job = Callable[[sqlite3.Connection], None]

BATCH_RECORDS_MAX: Final = 8_192
"""Bounds a transaction, and so how long other processes wait for theirs."""
BATCH_BYTES_MAX: Final = 16 * 1024 * 1024


class Append(NamedTuple):
    slot: int
    partition: int
    key: bytes
    value: bytes
    headers: bytes
    size: int
    delivered: Delivered


class SqliteWriter:
    """`beat` is called about every `beat_interval_s`, between transactions."""

    def __init__(
        self,
        path: Path,
        *,
        now_ms: Callable[[], int],
        busy_timeout_s: float,
        queue_records_max: int,
        queue_bytes_max: int,
        size_bytes_max: int | None,
        beat: Job,
        beat_interval_s: float,
    ) -> None:
        self._path = path
        self._now_ms = now_ms
        self._queue_records_max = queue_records_max
        self._queue_bytes_max = queue_bytes_max
        self._beat = beat
        self._beat_interval_s = beat_interval_s
        self._connection = connect(path, busy_timeout_s=busy_timeout_s)
        if size_bytes_max is not None:
            page_bytes = self._connection.execute("PRAGMA page_size").fetchone()[0]
            self._connection.execute(f"PRAGMA max_page_count={max(1, size_bytes_max // page_bytes)}")
        self._changed = threading.Condition()
        self._queue: deque[Append] = deque()
        self._queue_bytes = 0
        self._taken: list[Append] = []
        self._jobs: deque[Job] = deque()
        self._open = 0
        self._idle = False
        self._closing = False
        self._dead: BaseException | None = None
        self.arrived: Final = threading.Condition()
        self.commits = 0
        """Grows with every commit; readers of this process wait for it on `arrived`."""
        self._thread = threading.Thread(target=self._run, name="tracklog-sqlite-writer", daemon=True)
        self._thread.start()

    def append(self, append: Append) -> None:
        with self._changed:
            self.check_alive()
            if self._open >= self._queue_records_max or self._queue_bytes + append.size > self._queue_bytes_max:
                raise LogQueueFull(
                    f"{self._open} appends ({self._queue_bytes} bytes) wait for sqlite:{self._path}",
                    hint="wait and append this record again",
                )
            self._queue.append(append)
            self._queue_bytes += append.size
            self._open += 1
            if self._idle:
                self._idle = False
                self._changed.notify_all()

    def run(self, job: Callable[[sqlite3.Connection], T], timeout_s: float) -> T:
        """Runs `job` in a transaction of its own on the writer's thread; LogUnavailable past the bound."""
        outcome: Future[T] = Future()

        def work(connection: sqlite3.Connection) -> None:
            if not outcome.set_running_or_notify_cancel():
                return
            try:
                outcome.set_result(self._transaction(job))
            except Exception as error:  # noqa: BLE001 - the caller raises it
                outcome.set_exception(error)

        with self._changed:
            self.check_alive()
            self._jobs.append(work)
            self._changed.notify_all()
        try:
            return outcome.result(timeout_s)
        except TimeoutError:
            outcome.cancel()
            raise LogUnavailable(f"sqlite:{self._path} did not answer within {timeout_s:g} s") from None
        except sqlite3.Error as error:
            raise read_error(self._path, error) from error

    def flush(self, timeout_s: float) -> int:
        with self._changed:
            self._changed.wait_for(lambda: self._open == 0, timeout_s)
            return self._open

    def close(self, timeout_s: float) -> None:
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join(timeout_s)
        refused, unknown = self._surrender()
        self._fail_all(refused, AppendRefused, f"sqlite:{self._path} was closed before this append was begun")
        self._fail_all(unknown, AppendUnknown, f"sqlite:{self._path} was closed during a commit")

    def check_alive(self) -> None:
        """Raises ClientFatal once it takes nothing any more."""
        if self._dead is not None:
            raise ClientFatal(f"the writer of sqlite:{self._path} has ended: {self._dead}")
        if self._closing:
            raise ClientFatal(f"the log sqlite:{self._path} is closed")

    def _run(self) -> None:
        try:
            while self._turn():
                pass
        except BaseException as error:
            self._dead = error
            raise
        finally:
            refused, unknown = self._surrender()
            self._fail_all(refused, AppendRefused, f"the writer of sqlite:{self._path} ended before this append")
            self._fail_all(unknown, AppendUnknown, f"the writer of sqlite:{self._path} ended during a commit")
            self._connection.close()

    def _turn(self) -> bool:
        """One batch, the jobs that wait, one beat. False when closing and nothing is left."""
        with self._changed:
            if not self._queue and not self._jobs and not self._closing:
                self._idle = True
                self._changed.wait(self._beat_interval_s)
                self._idle = False
            self._take_batch()
            jobs = list(self._jobs)
            self._jobs.clear()
            finished = self._closing and not self._taken and not jobs
        if self._taken:
            self._commit_taken()
        for job in jobs:
            job(self._connection)
        self._beat(self._connection)
        return not finished

    def _take_batch(self) -> None:
        size = 0
        while self._queue and len(self._taken) < BATCH_RECORDS_MAX and size < BATCH_BYTES_MAX:
            append = self._queue.popleft()
            size += append.size
            self._taken.append(append)
        self._queue_bytes -= size

    def _commit_taken(self) -> None:
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            positions = self._insert(self._taken)
        except sqlite3.Error as error:
            self._roll_back()
            self._refuse(error)
            return
        try:
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            self._roll_back()
            self._settle_failed_commit(error)
            return
        self._announce()
        batch = self._done()
        for append, position in zip(batch, positions, strict=False):
            append.delivered(position, None)
        self._settled(len(batch))

    def _insert(self, batch: list[Append]) -> list[Position]:
        """Gives offsets inside the transaction: other processes append to the same partitions."""
        now_ms = self._now_ms()
        heads: dict[int, list[int]] = {}
        rows = []
        positions = []
        for slot, partition, key, value, headers, _, _ in batch:
            head = heads.get(slot)
            if head is None:
                offset, last_ms = self._connection.execute(
                    "SELECT next_offset, last_timestamp_ms FROM partitions WHERE slot = ?", (slot,)
                ).fetchone()
                head = heads[slot] = [offset, max(now_ms, last_ms)]
            offset, timestamp_ms = head
            rows.append((slot * SPAN + offset, timestamp_ms, key, value, headers))
            positions.append(Position(partition, offset, timestamp_ms))
            head[0] = offset + 1
        rows.sort(key=lambda row: row[0])
        self._connection.executemany("INSERT INTO records VALUES (?, ?, ?, ?, ?)", rows)
        self._connection.executemany(
            "UPDATE partitions SET next_offset = ?, last_timestamp_ms = ? WHERE slot = ?",
            [(head[0], head[1], slot) for slot, head in heads.items()],
        )
        return positions

    def _refuse(self, error: sqlite3.Error) -> None:
        """Nothing was committed. What queued while the file was locked has waited as long: it ends too."""
        batch = self._done()
        if primary_code(error) == sqlite3.SQLITE_BUSY:
            with self._changed:
                batch += self._queue
                self._queue.clear()
                self._queue_bytes = 0
        self._fail_all(batch, AppendRefused, _refusal(self._path, error))

    def _settle_failed_commit(self, error: sqlite3.Error) -> None:
        """A commit that found no room or no lock wrote no valid end to the write-ahead log. Anything else,
        a failed fsync above all, may have: a recovery can still find it."""
        if primary_code(error) in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY):
            self._fail_all(self._done(), AppendRefused, _refusal(self._path, error))
        else:
            self._fail_all(self._done(), AppendUnknown, f"a commit to sqlite:{self._path} failed: {error}")

    def _transaction(self, job: Callable[[sqlite3.Connection], T]) -> T:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            result = job(self._connection)
            self._connection.execute("COMMIT")
        except BaseException:
            self._roll_back()
            raise
        self._announce()
        return result

    def _roll_back(self) -> None:
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    def _announce(self) -> None:
        with self.arrived:
            self.commits += 1
            self.arrived.notify_all()

    def _done(self) -> list[Append]:
        """Takes over the right, and the duty, to report the batch; empty when `close` took it first."""
        with self._changed:
            batch, self._taken = self._taken, []
            return batch

    def _surrender(self) -> tuple[list[Append], list[Append]]:
        with self._changed:
            queued, self._queue = list(self._queue), deque()
            self._queue_bytes = 0
            taken, self._taken = self._taken, []
            return queued, taken

    def _fail_all(self, batch: list[Append], kind: type[AppendError], message: str) -> None:
        for append in batch:
            append.delivered(None, kind(message))
        self._settled(len(batch))

    def _settled(self, count: int) -> None:
        with self._changed:
            self._open -= count
            if self._open == 0:
                self._changed.notify_all()


def _refusal(path: Path, error: sqlite3.Error) -> str:
    code = primary_code(error)
    if code == sqlite3.SQLITE_FULL:
        return f"sqlite:{path} has no room: the disk, or the size allowed to the file, is full"
    if code == sqlite3.SQLITE_READONLY:
        return f"sqlite:{path} is read-only here"
    if code == sqlite3.SQLITE_BUSY:
        return f"sqlite:{path} stays locked by another process"
    return f"sqlite:{path} refused an append: {error}"
