"""An exporter in a process of its own that stops dead at a named point of a commit:

python -m tests.support.exporter_process JOB      a JSON object, see `Job`

fold               records were read, and wait
X.stage            before a Parquet file; X.staged after it. X is `undecodable` or `events`, one table's part each
file.written       such a file has its bytes; file.synced: and is on the disk; file.named: and has its name
X.commit           before Delta's commit; X.added: its rows and offsets are in; X.durable: and on the disk
told               the commit is over
hint, hinted       around the offset that Kafka's group is told; for this the exporter is a member of it
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Final

from tests.support.points import Armed, Points
from tracklog.consumers.export.exporter import Committed
from tracklog.consumers.export.running import Export, export_of
from tracklog.infra.clock import SystemClock, SystemEntropy
from tracklog.infra.cold.table import ColdTable
from tracklog.infra.log.open import open_log
from tracklog.infra.log.port import GroupListener, GroupMember
from tracklog.infra.settings import Settings

NAME: Final = "exporter"
TABLES: Final = ("undecodable", "events")
OF_A_TABLE: Final = ("stage", "staged", "commit", "added", "durable")
OF_A_FILE: Final = ("file.written", "file.synced", "file.named")
HINTS: Final = ("hint", "hinted")
POINTS: Final = (
    "fold",
    *(f"{table}.{point}" for table in TABLES for point in OF_A_TABLE),
    *OF_A_FILE,
    "told",
    *HINTS,
)


@dataclass(frozen=True)
class Job:
    """`settings`: of the installation, as JSON. `occurrence` counts from 1."""

    settings: dict[str, Any]
    point: str
    occurrence: int
    signal: int

    def argument(self) -> str:
        return json.dumps(asdict(self))


def main(argument: str) -> None:
    job = Job(**json.loads(argument))
    settings = Settings.model_validate(job.settings)
    points = Points({NAME: Armed(job.point, job.occurrence, 0.0, job.signal)})
    log = open_log(settings.log.url)
    work = export_of(log, settings, clock=SystemClock(), entropy=SystemEntropy())
    watch(work, lambda point: points.at(NAME, point))
    if job.point in HINTS:
        _as_a_member(work, points)
    else:
        work.loop.drain()
    log.close()


def watch(work: Export, at: Callable[[str], None]) -> None:
    """Puts the points around what one commit does."""
    fold, told = work.exporter.fold, work.exporter.on_commit

    def folded(*arguments: Any) -> None:
        at("fold")
        fold(*arguments)

    def committed(one: Committed) -> None:
        at("told")
        told(one)

    work.exporter.fold = folded  # type: ignore[assignment, method-assign]
    work.exporter.on_commit = committed
    _watch_table("events", work.tables.events, at)
    _watch_table("undecodable", work.tables.undecodable, at)
    _watch_files(at)


def _watch_table(name: str, table: ColdTable, at: Callable[[str], None]) -> None:
    stage, commit, sync_log = table.place.stage, table.commit, table.place.sync_log

    def staged(path: str, data: bytes) -> None:
        at(f"{name}.stage")
        stage(path, data)
        at(f"{name}.staged")

    def committed(*arguments: Any) -> None:
        at(f"{name}.commit")
        commit(*arguments)

    def synced(versions: range) -> None:
        at(f"{name}.added")
        sync_log(versions)
        at(f"{name}.durable")

    table.place.stage = staged  # type: ignore[method-assign]
    table.commit = committed  # type: ignore[assignment, method-assign]
    table.place.sync_log = synced  # type: ignore[method-assign]


def _watch_files(at: Callable[[str], None]) -> None:
    fchmod, replace = os.fchmod, os.replace

    def written(fd: int, mode: int) -> None:
        at("file.written")
        fchmod(fd, mode)

    def named(source: str, target: str) -> None:
        at("file.synced")
        replace(source, target)
        at("file.named")

    os.fchmod = written
    os.replace = named  # type: ignore[assignment]


def _as_a_member(work: Export, points: Points) -> None:
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())

    def join(group: str, topic: str, listener: GroupListener) -> GroupMember:
        member = work.log.group(group, topic, listener)
        commit = member.commit

        def hinted(*arguments: Any) -> None:
            points.at(NAME, "hint")
            commit(*arguments)
            points.at(NAME, "hinted")

        member.commit = hinted  # type: ignore[assignment, method-assign]
        return member

    work.loop.run(work.group, stop, join)


if __name__ == "__main__":
    main(sys.argv[1])
