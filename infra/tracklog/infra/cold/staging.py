"""Rows into Parquet files that no commit names yet: one for each value of what the table is partitioned by."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from datetime import date
from io import BytesIO
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake.transaction import AddAction

from tracklog.infra.cold.table import STATS_COLUMNS, ColdTable

__all__ = ["encoded", "staged"]

ROW_GROUP_ROWS: Final = 16_384
"""Rows of a row group: what a reader holds at once, and what compression sees together."""
PAGE_BYTES: Final = 4 * 1024 * 1024
"""Bytes of a page: the window in which repeated prompts and tool results are found."""
COMPRESSION_LEVEL: Final = 3
_DICTIONARY: Final = frozenset(
    {"cluster_id", "topic_id", "trajectory_id", "event_type", "type_version", "inbox_source", "fingerprint", "reason"}
)
_DELTA: Final = frozenset(
    {"offset", "append_ms", "recorded_at", "seq", "lamport", "turn", "epoch", "skipped", "inbox_seq", "partition"}
)


def staged(table: ColdTable, rows: pa.Table, new_name: Callable[[], str], modified_ms: int) -> Iterator[AddAction]:
    """Writes the rows and gives what a commit must name. `rows` has the table's columns, ordered by partition and
    offset. A file that no commit comes to name is found and removed by `tracklog cold vacuum`."""
    columns = table.kind.partitioned_by
    for values, part in _parted(rows, columns):
        data = encoded(part)
        path = f"{values['date']}/{new_name()}.parquet"
        table.place.stage(path, data)
        texts = {name: str(value) for name, value in values.items()}
        yield AddAction(path, len(data), texts, modified_ms, True, statistics(part))


def encoded(rows: pa.Table) -> bytes:
    """One Parquet file."""
    out = BytesIO()
    names = rows.column_names
    with pq.ParquetWriter(
        out,
        rows.schema,
        compression="zstd",
        compression_level=COMPRESSION_LEVEL,
        use_dictionary=[name for name in names if name in _DICTIONARY],
        column_encoding={name: "DELTA_BINARY_PACKED" for name in names if name in _DELTA},
        write_statistics=[name for name in names if name in STATS_COLUMNS],
        data_page_size=PAGE_BYTES,
    ) as writer:
        writer.write_table(rows, row_group_size=ROW_GROUP_ROWS)
    return out.getvalue()


def _parted(rows: pa.Table, columns: tuple[str, ...]) -> Iterator[tuple[dict[str, str | date], pa.Table]]:
    """The rows of each value of the columns, without these, by partition and offset: slices of one ordered copy, so as
    many files as there are tenants cost no more."""
    ordered = rows.sort_by([(name, "ascending") for name in (*columns, "partition", "offset")])
    grouped = ordered.select(list(columns)).group_by(list(columns), use_threads=False)
    begin = 0
    for values in grouped.aggregate([([], "count_all")]).to_pylist():
        count = values.pop("count_all")
        yield values, ordered.slice(begin, count).drop_columns(list(columns))
        begin += count


def statistics(rows: pa.Table) -> str:
    """Of a file, as JSON, the way an entry of the table's log has them."""
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for name in STATS_COLUMNS:
        if name in rows.column_names:
            limits: Mapping[str, Any] = pc.min_max(rows[name]).as_py()
            low[name], high[name], nulls[name] = limits["min"], limits["max"], rows[name].null_count
    return json.dumps({"numRecords": rows.num_rows, "minValues": low, "maxValues": high, "nullCount": nulls})
