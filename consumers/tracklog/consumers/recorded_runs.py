"""Which recorded runs are meant by a file: a list of ids, a pulled log (`tracklog pull`), or a folder of these."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from tracklog.consumers.wiring import check_topic, opened_log
from tracklog.infra.log.partitioner import partition_of
from tracklog.infra.log.port import Log
from tracklog.infra.log.ranges import read_range
from tracklog.infra.settings import Settings
from tracklog.schemas.catalog import HEADER_TYPE
from tracklog.schemas.errors import InputError
from tracklog.schemas.events import TaskStarted

__all__ = ["RecordedRun", "by_partition", "runs_of"]

SQLITE_MAGIC: Final = b"SQLite format 3\x00"
BLOBS: Final = "blobs"
"""The folder beside a pulled log that has its blobs; no log is looked for in it."""
LIST_BYTES_MAX: Final = 16 * 1024 * 1024


class RecordedRun(NamedTuple):
    """A run, and the settings of the log and blobs that have it. `file`: the log, where that is a file by itself."""

    trajectory_id: str
    settings: Settings
    file: Path | None = None


def runs_of(path: Path, settings: Settings) -> list[RecordedRun]:
    """The runs that a file or folder names, each once; ids of a list are of the log of the settings.

    Raises InputError for what is none of these or names no run, and what opening a log raises.
    """
    try:
        if path.is_dir():
            runs = [run for file in _logs_below(path) for run in _of_log(file, settings)]
        elif _is_log(path):
            runs = list(_of_log(path, settings))
        else:
            runs = [RecordedRun(one, settings) for one in _ids(path)]
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error
    if not runs:
        raise InputError(f"{path} has no recorded run", hint="one id a line, or what `tracklog pull` has brought")
    return runs


def by_partition(runs: list[RecordedRun], most: int) -> list[list[RecordedRun]]:
    """The runs in batches that are read by one scan each: of one partition, at most so many. Raises as opening does."""
    places: dict[tuple[str, int], list[RecordedRun]] = {}
    counts: dict[str, int] = {}
    for run in runs:
        url = run.settings.log.url
        if url not in counts:
            with opened_log(run.settings) as log:
                check_topic(log, run.settings)
                counts[url] = log.partition_count(run.settings.topic_names.events)
        place = (url, partition_of(run.trajectory_id.encode(), counts[url]))
        places.setdefault(place, []).append(run)
    return [some[n : n + most] for some in places.values() for n in range(0, len(some), most)]


def _of_log(file: Path, settings: Settings) -> Iterator[RecordedRun]:
    home = file.absolute().parent
    there = settings.model_copy(
        update={
            "home": str(home),
            "log": settings.log.model_copy(update={"url": f"sqlite:{home / file.name}"}),
            "blobs": settings.blobs.model_copy(update={"url": str(home / BLOBS)}),
        }
    )
    with opened_log(there) as log:
        check_topic(log, there)
        for trajectory_id in _started(log, there.topic_names.events):
            yield RecordedRun(trajectory_id, there, file)


def _started(log: Log, topic: str) -> list[str]:
    """Every trajectory with a start, by name."""
    found: set[bytes] = set()
    for partition in range(log.partition_count(topic)):
        bounds = log.bounds(topic, partition)
        for record in read_range(log, topic, partition, bounds.first, bounds.end, bounds=bounds):
            if record.key and (HEADER_TYPE, TaskStarted.__name__.encode()) in record.headers:
                found.add(record.key)
    return sorted(key.decode("utf-8", "replace") for key in found)


def _logs_below(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if path.is_dir():
            if path.name != BLOBS:
                yield from _logs_below(path)
        elif _is_log(path):
            yield path


def _is_log(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(SQLITE_MAGIC)) == SQLITE_MAGIC


def _ids(path: Path) -> list[str]:
    if path.stat().st_size > LIST_BYTES_MAX:
        raise InputError(f"{path} is no list of ids: it has more than {LIST_BYTES_MAX} bytes")
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is neither a list of ids nor a log", hint="one id a line, in UTF-8") from error
    ids = (line.strip() for line in lines)
    return list(dict.fromkeys(one for one in ids if one and not one.startswith("#")))
