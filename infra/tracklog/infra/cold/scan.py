"""Rows of one partition in the order of their offsets, in bounded memory: one row group after another.

Files hold rows of several partitions, ordered by partition and offset; after compaction a file is several such runs
one after another. So a row group is read when the first of its offsets comes, and what lies before the next one is
given out: only row groups that overlap are held at once.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tracklog.infra.cold.columns import EVENTS
from tracklog.infra.cold.faults import speaking_of
from tracklog.infra.cold.table import ColdTable, DataFile
from tracklog.schemas.errors import ColdDamaged

__all__ = ["last_models", "scan"]


class _Piece(NamedTuple):
    """A file (row_group -1) or one of its row groups, by the least offset that may be in it."""

    offset_min: int
    number: int
    file: DataFile
    row_group: int


def scan(
    table: ColdTable,
    partition: int,
    first: int = 0,
    end: int | None = None,
    columns: Sequence[str] | None = None,
    *,
    on_damaged: Callable[[DataFile, ColdDamaged], None] | None = None,
) -> Iterator[pa.Table]:
    """Tables of rows, in the order of offsets within and among them. Rows that are there twice come twice.

    `columns` is a part of those of the events table; all without. Raises ColdDamaged that names the file, or tells
    `on_damaged` and goes on without what cannot be read.
    """
    wanted = list(columns) if columns is not None else EVENTS.names
    names = [*wanted, *(name for name in ("partition", "offset") if name not in wanted)]
    heap = [_Piece(f.offset_min, n, f, -1) for n, f in enumerate(table.files(partition, first, end))]
    heapq.heapify(heap)
    held: list[pa.Table] = []
    while heap:
        piece = heapq.heappop(heap)
        try:
            if piece.row_group < 0:
                for found in list(_row_groups(table, piece, partition, first, end)):
                    heapq.heappush(heap, found)
            else:
                held.append(_rows(table, piece, names, partition, first, end))
        except ColdDamaged as error:
            if on_damaged is None:
                raise
            on_damaged(piece.file, error)
        if held and (not heap or heap[0].offset_min > piece.offset_min):
            ready, held = _before(held, heap[0].offset_min if heap else None)
            if ready.num_rows:
                yield ready.select(wanted)


def _row_groups(table: ColdTable, piece: _Piece, partition: int, first: int, end: int | None) -> Iterator[_Piece]:
    with _opened(table, piece.file) as file:
        meta = file.metadata
        at = {meta.schema.column(i).name: i for i in range(meta.num_columns)}
        for index in range(meta.num_row_groups):
            group = meta.row_group(index)
            numbers, offsets = (group.column(at[name]).statistics for name in ("partition", "offset"))
            if numbers is None or offsets is None or not numbers.has_min_max or not offsets.has_min_max:
                yield _Piece(piece.offset_min, piece.number, piece.file, index)
            elif (
                numbers.min <= partition <= numbers.max and offsets.max >= first and (end is None or offsets.min < end)
            ):
                yield _Piece(max(offsets.min, piece.offset_min), piece.number, piece.file, index)


def _rows(
    table: ColdTable, piece: _Piece, names: Sequence[str], partition: int, first: int, end: int | None
) -> pa.Table:
    stored = [name for name in names if name not in piece.file.values]
    with _opened(table, piece.file) as file:
        present = [name for name in stored if name in file.schema_arrow.names]
        rows = file.read_row_group(piece.row_group, columns=present, use_threads=False)
    mask = pc.and_(pc.equal(rows["partition"], partition), pc.greater_equal(rows["offset"], first))
    if end is not None:
        mask = pc.and_(mask, pc.less(rows["offset"], end))
    return _complete(rows, names, piece.file).filter(mask)  # of our types: views, which others write, have no filter


def _complete(rows: pa.Table, names: Sequence[str], file: DataFile) -> pa.Table:
    """With the columns that the table's log has, and nulls for those that came after the file."""
    arrays = []
    for name in names:
        kind = EVENTS.field(name).type
        if name in rows.column_names:
            arrays.append(rows[name].cast(kind))
        else:
            arrays.append(pa.chunked_array([pa.repeat(pa.scalar(file.values.get(name), kind), rows.num_rows)]))
    return pa.table(arrays, names=list(names))


def _before(held: list[pa.Table], bound: int | None) -> tuple[pa.Table, list[pa.Table]]:
    """(rows below the bound, ordered; what is to be held on to)."""
    rows = pa.concat_tables(held).sort_by("offset")
    if bound is None:
        return rows, []
    count = pc.sum(pc.less(rows["offset"], bound)).as_py() or 0
    return rows.slice(0, count), [rows.slice(count)] if count < rows.num_rows else []


class _opened:
    """A Parquet file for as long as a block lasts; what it raises names the file."""

    def __init__(self, table: ColdTable, file: DataFile) -> None:
        self._table = table
        self._file = file

    def __enter__(self) -> pq.ParquetFile:
        with speaking_of(f"cannot read {self._table.uri}/{self._file.path}"):
            try:
                self._open = self._table.parquet(self._file.path)
            except (pa.ArrowInvalid, FileNotFoundError) as error:
                raise self._damaged(error) from error
        return self._open

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._open.close()
        if isinstance(error, pa.ArrowException | OSError):
            raise self._damaged(error) from error

    def _damaged(self, error: BaseException) -> ColdDamaged:
        file = self._file
        return ColdDamaged(
            f"{self._table.uri}/{file.path} cannot be read ({str(error).splitlines()[0][:200]}): it holds"
            f" {file.rows} events of partitions {file.partition_min} to {file.partition_max}, offsets"
            f" {file.offset_min} to {file.offset_max}",
            hint="restore the file from a backup; `tracklog cold verify` names everything that is wrong",
        )


def last_models(table: ColdTable, partition: int, trajectories: set[str]) -> dict[str, str]:
    """The model in the last row of each of these trajectories; those that have no row are left out.

    Read from the newest rows back, until all are found.
    """
    found: dict[str, tuple[int, str]] = {}
    wanted = pa.array(sorted(trajectories), pa.string())
    for file in sorted(table.files(partition), key=lambda one: -one.offset_max):
        if len(found) == len(trajectories) and file.offset_max < min(offset for offset, _ in found.values()):
            break
        piece = _Piece(file.offset_min, 0, file, -1)
        for group in _row_groups(table, piece, partition, 0, None):
            rows = _rows(table, group, ("trajectory_id", "partition", "offset", "model"), partition, 0, None)
            for row in rows.filter(pc.is_in(rows["trajectory_id"], wanted)).to_pylist():
                if row["offset"] >= found.get(row["trajectory_id"], (0, ""))[0]:
                    found[row["trajectory_id"]] = (row["offset"], row["model"])
    return {trajectory_id: model for trajectory_id, (_, model) in found.items()}
