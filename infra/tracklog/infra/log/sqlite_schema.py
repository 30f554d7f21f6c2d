"""The file of the embedded log: its tables, its format version, and how it is opened.

A record's id is `slot * SPAN + offset`: one integer B-tree holds all partitions, each as a contiguous range,
and reading a partition is a range scan. The partitions of a topic get adjacent slots when it is created.
"""

from __future__ import annotations

import json
import secrets
import sqlite3
import threading
import time
from pathlib import Path
from typing import Final

from tracklog.schemas.errors import LogError, LogFormatError, LogUnavailable, SettingsError

APPLICATION_ID: Final = 0x544C4F47  # "TLOG"
FORMAT_VERSION: Final = 1
SPAN: Final = 1 << 40
"""Offsets of one partition; 2**40 of 600 bytes would be 600 TB."""
PAGE_BYTES: Final = 8_192
WAL_PAGES_MAX: Final = 2_000
"""Pages in the write-ahead log (16 MiB) before a commit also moves them into the file."""
_MAGIC: Final = b"SQLite format 3\x00"
_RETRY_S: Final = 0.01
_CHECK_STEPS: Final = 10_000
"""Instructions of SQLite between two looks at the clock."""
READ_FAULTS: Final = (sqlite3.Error, LogFormatError, TypeError, LookupError, json.JSONDecodeError)
"""What reading a damaged file may end in: SQLite gives back NULL, or no row, where the bytes make no sense."""
DAMAGED_HINT: Final = "restore the file from a copy; `tracklog doctor` says what SQLite finds"

_TABLES: Final = """
CREATE TABLE installation (cluster_id TEXT NOT NULL) STRICT;
CREATE TABLE topics (
  name TEXT PRIMARY KEY, topic_id TEXT NOT NULL, first_slot INTEGER NOT NULL, partitions INTEGER NOT NULL,
  config TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE partitions (
  slot INTEGER PRIMARY KEY, first_offset INTEGER NOT NULL, next_offset INTEGER NOT NULL,
  last_timestamp_ms INTEGER NOT NULL
) STRICT;
CREATE TABLE records (
  id INTEGER PRIMARY KEY, timestamp_ms INTEGER NOT NULL, key BLOB, value BLOB, headers BLOB NOT NULL
) STRICT;
CREATE TABLE groups (
  group_id TEXT NOT NULL, topic TEXT NOT NULL, generation INTEGER NOT NULL, PRIMARY KEY (group_id, topic)
) STRICT, WITHOUT ROWID;
CREATE TABLE group_members (
  group_id TEXT NOT NULL, topic TEXT NOT NULL, member TEXT NOT NULL, heartbeat_s REAL NOT NULL,
  PRIMARY KEY (group_id, topic, member)
) STRICT, WITHOUT ROWID;
CREATE TABLE group_owners (
  group_id TEXT NOT NULL, topic TEXT NOT NULL, partition INTEGER NOT NULL, member TEXT NOT NULL,
  generation INTEGER NOT NULL, PRIMARY KEY (group_id, topic, partition)
) STRICT, WITHOUT ROWID;
CREATE TABLE group_offsets (
  group_id TEXT NOT NULL, topic TEXT NOT NULL, partition INTEGER NOT NULL, next_offset INTEGER NOT NULL,
  PRIMARY KEY (group_id, topic, partition)
) STRICT, WITHOUT ROWID;
"""


def open_file(path: Path, *, busy_timeout_s: float) -> None:
    """Makes the file where there is none and checks the one there is.

    Raises LogFormatError (newer format, not one of ours), LogUnavailable (cannot be opened, locked).
    """
    _check_magic(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        connection = connect(path, busy_timeout_s=busy_timeout_s)
        try:
            _ensure_tables(connection, path, time.monotonic() + busy_timeout_s)
        finally:
            connection.close()
    except OSError as error:
        raise LogUnavailable(f"the log sqlite:{path} cannot be opened: {error}") from error
    except sqlite3.Error as error:
        raise read_error(path, error) from error


def connect(path: Path, *, busy_timeout_s: float) -> sqlite3.Connection:
    """A connection in autocommit mode. Its user sees to it that one thread has it at a time."""
    connection = sqlite3.connect(
        path, timeout=busy_timeout_s, isolation_level=None, check_same_thread=False, cached_statements=256
    )
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute(f"PRAGMA wal_autocheckpoint={WAL_PAGES_MAX}")
    connection.execute("PRAGMA cache_size=-32768")
    return connection


def read_error(path: Path, error: Exception) -> LogError:
    """What one of READ_FAULTS means to somebody who opens or reads the log."""
    if not isinstance(error, sqlite3.Error):
        said = error.message if isinstance(error, LogFormatError) else f"{type(error).__name__}: {error}"
        return LogFormatError(f"the log sqlite:{path} is damaged: {said}", hint=DAMAGED_HINT)
    code = primary_code(error)
    if code in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
        return LogFormatError(f"{path} is not a Tracklog log, or is damaged: {error}")
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return LogUnavailable(f"the log sqlite:{path} stays locked by another process", hint="end that process")
    return LogUnavailable(f"the log sqlite:{path} cannot be used: {error}")


def damage(path: Path, *, bound_s: float) -> str | None:
    """What SQLite finds wrong with the structure of the file: empty when it is sound, None when it could not look
    at all of it within the bound. Raises LogFormatError, LogUnavailable (locked, cannot be opened).
    """
    deadline_s = time.monotonic() + bound_s
    try:
        connection = connect(path, busy_timeout_s=bound_s)
        try:
            connection.set_progress_handler(lambda: time.monotonic() > deadline_s, _CHECK_STEPS)
            found = [str(row[0]) for row in connection.execute("PRAGMA quick_check(3)")]
        finally:
            connection.close()
    except sqlite3.Error as error:
        if primary_code(error) == sqlite3.SQLITE_INTERRUPT:
            return None
        raise read_error(path, error) from error
    return "" if found == ["ok"] else "; ".join(" ".join(text.split()) for text in found)


def primary_code(error: sqlite3.Error) -> int:
    """The primary result code: the low byte of the extended one; 0 where Python raised without one."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def _check_magic(path: Path) -> None:
    try:
        with path.open("rb") as file:
            start = file.read(len(_MAGIC))
    except FileNotFoundError:
        return
    except IsADirectoryError:
        raise SettingsError(f"the log sqlite:{path} is a directory", hint="name a file in it") from None
    except OSError as error:
        raise LogUnavailable(f"the log sqlite:{path} cannot be opened: {error}") from error
    if start and start != _MAGIC:
        raise LogFormatError(f"{path} is not a Tracklog log", hint="name another file, or move this one away")


def _ensure_tables(connection: sqlite3.Connection, path: Path, deadline_s: float) -> None:
    if _is_current(connection, path):
        return
    connection.execute(f"PRAGMA page_size={PAGE_BYTES}")
    _enter_wal(connection, path, deadline_s)
    connection.execute("BEGIN IMMEDIATE")
    try:
        if not _is_current(connection, path):
            for statement in filter(str.strip, _TABLES.split(";")):
                connection.execute(statement)
            connection.execute("INSERT INTO installation VALUES (?)", (secrets.token_hex(16),))
            connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version={FORMAT_VERSION}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _is_current(connection: sqlite3.Connection, path: Path) -> bool:
    """False for an empty file; LogFormatError for one that this program must not touch."""
    application_id = connection.execute("PRAGMA application_id").fetchone()[0]
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if application_id == APPLICATION_ID and version > FORMAT_VERSION:
        raise LogFormatError(
            f"{path} has format version {version}; this program knows up to {FORMAT_VERSION}",
            hint="upgrade tracklog",
        )
    if application_id == APPLICATION_ID and version == FORMAT_VERSION:
        return True
    if application_id != 0 or connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]:
        raise LogFormatError(f"{path} is a database of another program", hint="name another file")
    return False


def _enter_wal(connection: sqlite3.Connection, path: Path, deadline_s: float) -> None:
    """SQLite does not call its busy handler while the journal mode changes, so the wait is ours."""
    pause = threading.Event()
    while True:
        try:
            mode = connection.execute("PRAGMA journal_mode=WAL").fetchone()[0]
        except sqlite3.OperationalError as error:
            if primary_code(error) != sqlite3.SQLITE_BUSY or time.monotonic() > deadline_s:
                raise
            pause.wait(_RETRY_S)
            continue
        if mode != "wal":
            raise LogUnavailable(f"the log sqlite:{path} cannot keep a write-ahead log there", hint="use a local disk")
        return
