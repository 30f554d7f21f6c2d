"""Keeping a table well: small files merged, what nobody needs any more removed, what is not ours left alone.

Both are done under a lock of their own (`lock`). Exporters go on meanwhile: they only add.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from deltalake import WriterProperties

from tracklog.infra.cold.faults import speaking_of
from tracklog.infra.cold.lock import upkeep_lock
from tracklog.infra.cold.staging import COMPRESSION_LEVEL, PAGE_BYTES, ROW_GROUP_ROWS
from tracklog.infra.cold.table import ColdTable
from tracklog.schemas.errors import ColdConflict, InputError

__all__ = ["GRACE_HOURS_MIN", "Compacted", "Leftovers", "Vacuumed", "compact", "leftovers", "vacuum"]

TARGET_BYTES: Final = 192 * 1024 * 1024
"""Bytes up to which files are merged: a table of enough rows has files of 64 to 256 MB."""
GRACE_HOURS_MIN: Final = 25
"""A file that an exporter has written and not yet committed must outlive a clock that is wrong by a day."""
ATTEMPTS_MAX: Final = 3
_OURS = re.compile(
    r"\d{4}-\d\d-\d\d/[0-9a-f]{32}-\d+\.parquet\Z|(?:[^/]+=[^/]*/)+part-\d{5}-[0-9a-f-]{36}-c\d{3}\.zstd\.parquet\Z"
)
"""Names that exporters and compaction give."""
_PUT: Final = ".put-"


class Compacted(NamedTuple):
    files_removed: int
    files_added: int
    bytes_removed: int
    bytes_added: int


class Leftovers(NamedTuple):
    """Files in a table's folder that it does not name. `orphans` are ours, of writers that died; the others are
    somebody else's."""

    removed: tuple[str, ...]
    """Named by older versions alone."""
    orphans: tuple[str, ...]
    foreign: tuple[str, ...]


class Vacuumed(NamedTuple):
    removed: int
    orphans: int
    foreign: tuple[str, ...]


def compact(table: ColdTable, now_us: int, *, target_bytes: int = TARGET_BYTES, break_lock: bool = False) -> Compacted:
    """Merges files until they have about so many bytes; rows, their order and the offsets stay.

    Raises ColdConflict when another one compacts.
    """
    with upkeep_lock(table.place, now_us, broken=break_lock):
        for attempt in range(ATTEMPTS_MAX):
            table.reopen()
            try:
                return _compacted(table, target_bytes)
            except ColdConflict:
                if attempt == ATTEMPTS_MAX - 1:
                    raise
    raise AssertionError("unreachable")


def _compacted(table: ColdTable, target_bytes: int) -> Compacted:
    before = {file.path: file.size_bytes for file in table.files()}
    version = table.version
    with speaking_of(f"cannot compact {table.uri}"):
        table.handle.optimize.compact(
            target_size=target_bytes,
            max_concurrent_tasks=1,
            writer_properties=WriterProperties(
                compression="ZSTD",
                compression_level=COMPRESSION_LEVEL,
                max_row_group_size=ROW_GROUP_ROWS,
                data_page_size_limit=PAGE_BYTES,
            ),
        )
    table.reopen()
    after = {file.path: file.size_bytes for file in table.files()}
    new = after.keys() - before.keys()
    table.place.sync_files(new)
    table.place.sync_log(range(version + 1, table.version + 1))
    gone = before.keys() - after.keys()
    return Compacted(len(gone), len(new), sum(before[one] for one in gone), sum(after[one] for one in new))


def leftovers(table: ColdTable, grace_hours: int) -> Leftovers:
    """Those older than the grace time, by the clocks of the machine and of the store."""
    with speaking_of(f"cannot list {table.uri}"):
        removed = table.handle.vacuum(grace_hours, dry_run=True, enforce_retention_duration=False)
        every = table.handle.vacuum(grace_hours, dry_run=True, enforce_retention_duration=False, full=True)
    others = sorted(set(every) - set(removed))
    orphans = tuple(one for one in others if _OURS.match(one))
    return Leftovers(tuple(sorted(removed)), orphans, tuple(one for one in others if not _OURS.match(one)))


def vacuum(
    table: ColdTable, now_us: int, *, grace_hours: int, dry_run: bool = True, break_lock: bool = False
) -> Vacuumed:
    """Removes files that only older versions name, and orphans, once they are older than the grace time. Files that
    are not ours stay. Raises InputError for a shorter grace time than is safe, ColdConflict beside a compaction."""
    if grace_hours < GRACE_HOURS_MIN:
        raise InputError(
            f"a grace time of {grace_hours} h is too short",
            hint=f"at least {GRACE_HOURS_MIN} h: what an exporter has just written is in no commit yet",
        )
    with upkeep_lock(table.place, now_us, broken=break_lock):
        table.reopen()
        found = leftovers(table, grace_hours)
        if not dry_run:
            with speaking_of(f"cannot clean {table.uri}"):
                table.handle.vacuum(grace_hours, dry_run=False, enforce_retention_duration=False)
            for path in found.orphans:
                table.place.remove(path)
            for stray in _unfinished(table.place.folder, now_us // 1_000_000 - grace_hours * 3600):
                stray.unlink(missing_ok=True)
            table.reopen()
            table.place.sync_log(range(table.version - 2, table.version + 1))
        return Vacuumed(len(found.removed), len(found.orphans), found.foreign)


def _unfinished(folder: Path | None, before_s: int) -> Iterator[Path]:
    """Files of a local disk that were being written when their writer died."""
    if folder is not None:
        yield from (one for one in folder.glob(f"*/{_PUT}*") if one.is_file() and one.stat().st_mtime < before_s)
