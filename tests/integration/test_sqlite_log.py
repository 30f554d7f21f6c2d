"""What only the embedded log meets: other processes on its file, and a file or disk that is not well."""

from __future__ import annotations

import os
import resource
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tracklog.infra.log.port import Position
from tracklog.infra.log.ranges import append_and_wait, read_range
from tracklog.infra.log.sqlite import SqliteLog, SqliteOptions
from tracklog.infra.log.sqlite_schema import FORMAT_VERSION, damage
from tracklog.schemas.errors import (
    AppendError,
    AppendRefused,
    LogFormatError,
    LogQueueFull,
    LogUnavailable,
    SettingsError,
)
from tracklog.schemas.topics import TopicSpec

Open = Callable[..., SqliteLog]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log.db"


@pytest.fixture
def open_log(path: Path) -> Iterator[Open]:
    opened = []

    def make(**options: object) -> SqliteLog:
        log = SqliteLog(path, now_ms=lambda: 1_000, options=SqliteOptions(**options))  # type: ignore[arg-type]
        log.create([TopicSpec("t", 2, 1)])
        opened.append(log)
        return log

    yield make
    for log in opened:
        log.close()


def put(log: SqliteLog, value: bytes = b"v") -> Position:
    return append_and_wait(log, "t", b"k", value, timeout_s=20)


APPENDER = """
import sys
from pathlib import Path
from tracklog.infra.log.sqlite import SqliteLog
from tracklog.infra.log.ranges import append_and_wait
path, name, count = sys.argv[1:]
log = SqliteLog(Path(path), now_ms=lambda: 1000)
print("ready", flush=True)
sys.stdin.readline()
for number in range(int(count)):
    position = append_and_wait(log, "t", name.encode(), f"{name}-{number}".encode(), timeout_s=30)
    print(position.partition, position.offset, flush=True)
log.close()
"""


def appender(path: Path, name: str, count: int) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", APPENDER, str(path), name, str(count)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def test_two_processes_append_at_once_and_no_offset_is_given_twice(path: Path, open_log: Open) -> None:
    log = open_log()
    with ThreadPoolExecutor() as pool:
        processes = [appender(path, name, 60) for name in ("a", "b")]
        outputs = [text for text, _ in pool.map(lambda process: process.communicate("go\n", 60), processes)]

    positions = [tuple(map(int, line.split())) for output in outputs for line in output.splitlines()]
    assert len(set(positions)) == len(positions) == 120
    records = [record for p in range(2) for record in read_range(log, "t", p, 0, 1_000)]
    assert {(record.partition, record.offset) for record in records} == set(positions)
    for name in ("a", "b"):
        values = [record.value for record in records if record.key == name.encode()]
        assert values == [f"{name}-{number}".encode() for number in range(60)]


def test_what_was_acknowledged_survives_a_kill(path: Path, open_log: Open) -> None:
    log = open_log()
    process = appender(path, "a", 100_000)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("go\n")
    process.stdin.flush()
    acknowledged = [process.stdout.readline() for _ in range(40)]
    process.send_signal(signal.SIGKILL)
    acknowledged += process.stdout.readlines()
    process.wait(10)

    offsets = [int(line.split()[1]) for line in acknowledged if line.endswith("\n") and " " in line]
    partition = int(acknowledged[0].split()[0])
    assert [record.offset for record in read_range(log, "t", partition, 0, len(offsets))] == offsets
    assert put(log).offset >= 0


def test_reader_of_another_process_is_woken(path: Path, open_log: Open) -> None:
    log = open_log()
    process = appender(path, "a", 1)
    reader = log.reader("t", {0: 0, 1: 0})
    assert reader.poll(10, 0.0) == []
    assert process.communicate("go\n", 20)[0]
    assert [record.value for record in reader.poll(10, 5.0)] == [b"a-0"]
    reader.close()


def test_locked_file_refuses_after_the_bound_and_recovers(path: Path, open_log: Open) -> None:
    log = open_log(busy_timeout_s=0.3)
    put(log)
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")

    with pytest.raises(AppendRefused, match="locked") as caught:
        put(log)
    assert caught.value.definite
    with pytest.raises(LogUnavailable, match="locked"):
        log.create([TopicSpec("other", 1, 1)])
    assert len(list(read_range(log, "t", 0, 0, 9))) + len(list(read_range(log, "t", 1, 0, 9))) == 1

    holder.execute("ROLLBACK")
    holder.close()
    assert put(log).offset == 1


def test_full_file_refuses_and_what_is_there_stays_readable(open_log: Open) -> None:
    log = open_log(size_bytes_max=400_000)
    kept = 0
    refused: AppendRefused | None = None
    while refused is None and kept < 100:
        try:
            put(log, os.urandom(20_000))
            kept += 1
        except AppendRefused as error:
            refused = error
    assert refused is not None
    assert refused.definite
    assert "no room" in str(refused)
    partition = put_partition(log)
    assert log.bounds("t", partition).end == kept > 5
    assert len(list(read_range(log, "t", partition, 0, 100))) == kept


def put_partition(log: SqliteLog) -> int:
    return next(partition for partition in range(2) if log.bounds("t", partition).end > 0)


def test_write_error_of_the_disk_never_claims_what_it_does_not_know(path: Path, tmp_path: Path, open_log: Open) -> None:
    """A file-size limit of the kernel fails the write inside the commit."""
    open_log().close()
    script = f"""
import resource, signal
from pathlib import Path
from tracklog.infra.log.sqlite import SqliteLog
from tracklog.infra.log.ranges import append_and_wait
from tracklog.schemas.errors import AppendError
log = SqliteLog(Path({str(path)!r}), now_ms=lambda: 1000)
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (2_000_000, resource.RLIM_INFINITY))
for number in range(200):
    try:
        append_and_wait(log, "t", b"k", bytes(30_000), timeout_s=20)
    except AppendError as error:
        print("failed", error.definite, number)
        break
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
print(append_and_wait(log, "t", b"k", b"after", timeout_s=20).offset)
log.close()
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, env=environment, check=False
    )
    failed, after = done.stdout.splitlines()
    assert failed.startswith("failed False "), done.stderr
    number = int(failed.split()[2])
    assert int(after) in (number, number + 1)
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can become somebody else")
def test_file_of_somebody_else_can_be_read_and_not_written() -> None:
    script = """
import os, sys
from pathlib import Path
from tracklog.infra.log.ranges import append_and_wait
from tracklog.infra.log.sqlite import SqliteLog
from tracklog.schemas.errors import AppendRefused
os.setuid(65534)
log = SqliteLog(Path(sys.argv[1]), now_ms=lambda: 1000)
print(sum(log.bounds("t", p).end for p in range(2)))
try:
    append_and_wait(log, "t", b"k", b"v", timeout_s=20)
except AppendRefused as error:
    print(error.definite, error)
log.close()
"""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        path = Path(folder) / "log.db"
        log = SqliteLog(path, now_ms=lambda: 1_000)
        log.create([TopicSpec("t", 2, 1)])
        put(log)
        done = subprocess.run(
            [sys.executable, "-c", script, str(path)],
            capture_output=True,
            text=True,
            timeout=60,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            check=False,
        )
        log.close()
    assert done.returncode == 0, done.stderr
    read, refused = done.stdout.splitlines()
    assert read == "1"
    assert refused.startswith("True ")
    assert "read-only" in refused


def test_newer_format_is_refused_and_left_alone(path: Path, open_log: Open) -> None:
    open_log().close()
    with sqlite3.connect(path) as connection:
        connection.execute(f"PRAGMA user_version={FORMAT_VERSION + 1}")
    connection.close()
    with pytest.raises(LogFormatError, match="upgrade"):
        SqliteLog(path, now_ms=lambda: 0)


def test_file_that_is_no_log_is_refused_and_left_alone(path: Path) -> None:
    path.write_bytes(b"a diary, not a database" * 100)
    with pytest.raises(LogFormatError, match="not a Tracklog log"):
        SqliteLog(path, now_ms=lambda: 0)
    assert path.read_bytes().startswith(b"a diary")

    other = path.with_name("other.db")
    with sqlite3.connect(other) as connection:
        connection.execute("CREATE TABLE theirs (x)")
    connection.close()
    with pytest.raises(LogFormatError, match="another program"):
        SqliteLog(other, now_ms=lambda: 0)
    with pytest.raises(SettingsError, match="directory"):
        SqliteLog(path.parent, now_ms=lambda: 0)


def test_file_truncated_in_the_middle_is_an_error_not_an_end(path: Path, open_log: Open) -> None:
    log = open_log()
    for _ in range(30):
        put(log, os.urandom(10_000))
    log.close()
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)
    with pytest.raises(LogFormatError, match="damaged"):
        SqliteLog(path, now_ms=lambda: 0)


def test_full_queue_is_back_pressure(path: Path, open_log: Open) -> None:
    log = open_log(queue_records_max=5, busy_timeout_s=5.0)
    holder = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    holder.execute("BEGIN IMMEDIATE")
    outcomes: list[Position | AppendError | None] = []
    for _ in range(5):
        log.append("t", b"k", b"v", (), lambda position, error: outcomes.append(position or error))
    with pytest.raises(LogQueueFull):
        log.append("t", b"k", b"v", (), lambda position, error: outcomes.append(position or error))
    holder.execute("COMMIT")
    holder.close()
    assert log.flush(20) == 0
    assert len(outcomes) == 5


def test_closing_while_the_file_is_locked_reports_every_append(path: Path, open_log: Open) -> None:
    log = open_log(busy_timeout_s=3.0, close_timeout_s=0.2)
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    outcomes: list[AppendError] = []
    reported = threading.Semaphore(0)

    def delivered(position: Position | None, error: AppendError | None) -> None:
        assert error is not None
        outcomes.append(error)
        reported.release()

    for _ in range(10):
        log.append("t", b"k", b"v", (), delivered)
    log.close()
    for _ in range(10):
        assert reported.acquire(timeout=10)
    holder.execute("ROLLBACK")
    holder.close()
    assert len(outcomes) == 10


def test_more_than_one_replica_cannot_be_promised(open_log: Open) -> None:
    with pytest.raises(SettingsError, match="3 replicas"):
        open_log().create([TopicSpec("three", 1, 3)])


def test_large_prefix_is_deleted_in_pieces(open_log: Open) -> None:
    log = open_log()
    for _ in range(45_000):
        log.append("t", b"k", b"v", (), lambda position, error: None)
    assert log.flush(30) == 0
    partition = put_partition(log)
    log.delete_records("t", {partition: 44_990})
    assert tuple(log.bounds("t", partition)) == (44_990, 45_000)
    assert len(list(read_range(log, "t", partition, 0, 50_000))) == 10


def test_file_whose_columns_are_not_what_they_were_is_damaged_wherever_it_is_read(path: Path, open_log: Open) -> None:
    log = open_log()
    put(log, b"v")
    reader = log.reader("t", {0: 0, 1: 0})
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA writable_schema=ON")
        connection.execute("UPDATE sqlite_schema SET sql = replace(replace(sql, 'STRICT', ''), 'NOT NULL', '')")
    connection.close()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE records SET headers = NULL")
    connection.close()

    with pytest.raises(LogFormatError, match=r"log\.db is damaged"):
        reader.poll(10, 0)
    with sqlite3.connect(path) as connection:
        connection.execute("DELETE FROM partitions")
    connection.close()
    with pytest.raises(LogFormatError, match=r"log\.db is damaged"):
        log.bounds("t", 0)


def test_damage_is_what_sqlite_finds_and_a_sound_file_has_none(path: Path, open_log: Open) -> None:
    log = open_log()
    for _ in range(200):
        put(log, b"v" * 2_000)
    log.close()
    assert damage(path, bound_s=10) == ""
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(size // 2)
        file.write(b"\xff" * 8_192)
    assert damage(path, bound_s=10)
