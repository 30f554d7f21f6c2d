"""Finished trajectories into the curated table: those of which something was added since, read whole and replaced."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, Final, NamedTuple

import orjson

from tracklog.consumers.export.rows import table_of
from tracklog.consumers.training.finished import finished
from tracklog.infra.blobs import BlobStore
from tracklog.infra.cold.curated import TRAJECTORIES, looked_at_to, replace_rows
from tracklog.infra.cold.table import ColdTable
from tracklog.infra.log.port import Log
from tracklog.infra.log.ranges import read_range
from tracklog.schemas.redaction import Redaction

__all__ = ["Curated", "curate"]

ROWS_A_COMMIT: Final = 10_000
_JSON: Final = ("labels", "models", "annotations", "faults", "origin", "parent")


class Curated(NamedTuple):
    """`changed`: trajectories of which something was added; those that have not ended have no row. `unverified`: of
    the rows, those of trajectories with a fault; `left_out`: trajectories that have ended and of which no row can be
    made."""

    changed: int
    rows: int
    unverified: int
    left_out: int


def curate(
    log: Log,
    topic: str,
    blobs: BlobStore,
    table: ColdTable,
    *,
    redaction: Redaction | None,
    progress: Callable[[int], None] = lambda _: None,
) -> Curated:
    """Brings the table up to the present ends of the log. Blocks.

    The ends are taken first, and are in with the last commit: whatever stops it before, the same is done again. Raises
    ColdConflict beside another one that does the same, and what reading a range raises.
    """
    ends, changed = {}, set[str]()
    for partition in range(log.partition_count(topic)):
        bounds = log.bounds(topic, partition)
        start = looked_at_to(table, partition)
        start = bounds.first if start is None else start
        ends[partition] = bounds.end
        for record in read_range(log, topic, partition, max(start, bounds.first), bounds.end, bounds=bounds):
            changed.add((record.key or b"").decode(errors="replace"))
            progress(1)
    if not changed:
        return Curated(0, 0, 0, 0)
    left_out = Counter[str]()
    found = finished(log, topic, blobs, left_out=left_out, among=frozenset(changed))
    made = (_shown(one.row(), redaction) for one in found)
    count = unverified = 0
    for rows in _batches(made):
        count += len(rows)
        unverified += sum(not row["verified"] for row in rows)
        last = len(rows) < ROWS_A_COMMIT
        replace_rows(table, table_of(rows, TRAJECTORIES), ends if last else {})
    return Curated(len(changed), count, unverified, left_out.total())


def _batches(rows: Iterator[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """The last has fewer than ROWS_A_COMMIT, perhaps none."""
    while True:
        batch = list(islice(rows, ROWS_A_COMMIT))
        yield batch
        if len(batch) < ROWS_A_COMMIT:
            return


def _shown(row: dict[str, Any], redaction: Redaction | None) -> dict[str, Any]:
    """As the table has it: what is nested as JSON; without what the policy for exports takes out."""
    if redaction is not None:
        said = {name: redaction.text(row[name]) for name in ("task", "reason")}
        row = {**row, **said, **{name: redaction.value(row[name]) for name in ("labels", "annotations")}}
    nested = {name: None if row[name] is None else orjson.dumps(row[name]).decode() for name in _JSON}
    return {**row, **nested}
