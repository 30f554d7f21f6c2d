"""What one partition has read and not yet committed."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from tracklog.consumers.export.models import Models
from tracklog.consumers.export.rows import Batch
from tracklog.infra.log.port import Record

__all__ = ["Buffer"]


class Buffer:
    """`begin`: where the table ends, as far as is known; `end`: where what is gathered here ends."""

    def __init__(self, begin: int, first: int | None, models: Models) -> None:
        self.begin = self.end = begin
        self.first = first
        """Where the export of the partition begins, if nothing of it is in the table yet."""
        self.gaps: dict[int, int] = {}
        self.models = models
        self._batches: list[Batch] = []
        self.rows = 0
        self.size_bytes = 0
        """Of the encoded events."""
        self.held_bytes = 0
        """What the rows take in memory."""

    def add(self, batch: Batch) -> None:
        self._batches.append(batch)
        self.end = batch.end
        self.rows += batch.rows.num_rows + batch.foreign.num_rows
        self.size_bytes += batch.size_bytes
        self.held_bytes += batch.rows.nbytes + batch.foreign.nbytes

    def skip_to(self, offset: int) -> None:
        """Passes offsets that the log has let go of."""
        self.gaps[self.end] = offset
        if self.first == self.end:  # the table begins behind it: it says so to who reads, and of the gap to who checks
            self.first = offset
        self.end = offset

    @property
    def first_ms(self) -> int | None:
        """When the oldest of what is gathered was appended, by the log's time."""
        return min((batch.first_ms for batch in self._batches), default=None)

    def events(self, stored: int) -> Iterator[pa.Table]:
        """Rows from the offset on, in order."""
        yield from (_from(batch.rows, stored) for batch in self._batches)

    def foreign(self, stored: int) -> Iterator[pa.Table]:
        yield from (_from(batch.foreign, stored) for batch in self._batches)

    def naming(self, stored: int) -> Iterator[Record]:
        """Records that may name blobs."""
        return (record for batch in self._batches for record in batch.naming if record.offset >= stored)

    def stored_to(self, offset: int) -> None:
        """All of it is in the table, which ends at `offset`: that may be further than what was gathered."""
        self._batches.clear()
        self.rows = self.size_bytes = self.held_bytes = 0
        self.gaps.clear()
        self.first = None
        self.begin = offset
        self.end = max(self.end, offset)


def _from(rows: pa.Table, offset: int) -> pa.Table:
    if rows.num_rows and rows["offset"][0].as_py() >= offset:
        return rows
    return rows.filter(pc.greater_equal(rows["offset"], offset))
