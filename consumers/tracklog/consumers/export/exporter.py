"""Owns partitions and commits what they read to the cold tier, each record once (DESIGN §7).

Rows wait in memory until they are enough for a commit, or have waited long enough. A commit holds rows of any of the
owned partitions and moves the next offset of each in the same step. What a commit rests on is the table alone, and a
commit by somebody else in between makes this one fail: then the table is read again, what is in by now is left out,
and the rest is committed. So an exporter that was frozen, lost its partitions, or lives twice writes nothing twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

import pyarrow as pa

from tracklog.consumers.export.buffer import Buffer
from tracklog.consumers.export.models import TRAJECTORIES_MAX, Models
from tracklog.consumers.export.redacting import ExportPolicy
from tracklog.consumers.export.rows import batches_of
from tracklog.infra.clock import Clock, Entropy
from tracklog.infra.cold.scan import last_models
from tracklog.infra.cold.staging import staged
from tracklog.infra.cold.table import ColdTable, app_id
from tracklog.infra.log.port import Log, Record
from tracklog.infra.settings_cold import ColdSettings
from tracklog.schemas.errors import ColdConflict, ColdMismatch, OffsetTrimmed, TracklogError

__all__ = ["Blobs", "Committed", "Exporter", "Tables"]

CONFLICTS_MAX: Final = 50
"""Commits in a row that others were quicker than. Each time somebody got on, so more is no race but a defect."""


class Tables(NamedTuple):
    """The two tables that an export writes."""

    events: ColdTable
    undecodable: ColdTable


class Blobs(Protocol):
    """What is done about blobs that records name, before the commit that holds these."""

    def bring(self, records: Sequence[Record]) -> None: ...


class Committed(NamedTuple):
    """One commit. `held_s`: how long its oldest row waited here, by the steady clock. `durable_s`: from the append of
    its oldest event until it was durable, by two clocks that may disagree: those of the log and of this machine."""

    events: int
    undecodable: int
    size_bytes: int
    offsets: Mapping[int, int]
    held_s: float
    durable_s: float
    conflicts: int


class Exporter:
    """See the module, and `partition_loop.Owner`. For the loop's thread alone."""

    def __init__(
        self,
        log: Log,
        tables: Tables,
        settings: ColdSettings,
        *,
        clock: Clock,
        entropy: Entropy,
        blobs: Blobs,
        accept_gap: bool = False,
        policy: ExportPolicy | None = None,
    ) -> None:
        self._log = log
        self._tables = tables
        self._settings = settings
        self._clock = clock
        self._entropy = entropy
        self._blobs = blobs
        self._accept_gap = accept_gap
        self._policy = policy
        self.on_commit: Callable[[Committed], None] = lambda _: None
        self._buffers: dict[int, Buffer] = {}
        self._waiting_since_s: float | None = None
        self._named = 0
        self._start = entropy.nonce().hex()
        self.stored: dict[int, int] = {}
        """How far each owned partition is durable: where the table ends."""
        self.unflushed: TracklogError | None = None
        """Why the last rows were not committed when partitions were given back; their next owner reads them."""
        self.gaps: dict[int, int] = {}
        """Offsets that are in neither log nor table, by partition, over which nobody has told it to go on."""

    def restore(self, partition: int) -> int:
        events = self._tables.events
        events.refresh()
        bounds = self._log.bounds(events.identity.topic, partition)
        known = events.next_offset(partition)
        begin = 0 if known is None else known
        models = Models(lambda wanted: last_models(self._tables.events, partition, wanted))
        self._buffers[partition] = buffer = Buffer(begin, 0 if known is None else None, models)
        self.stored[partition] = begin
        for one in self._buffers.values():
            one.models.kept_max = max(1, TRAJECTORIES_MAX // len(self._buffers))
        if bounds.first > begin:
            self._pass_gap(partition, buffer, bounds.first)
        return buffer.end

    def fold(self, partition: int, records: Sequence[Record], position: int) -> None:
        """Gathers; commits when there is enough, or what there is has waited long enough, or nothing comes."""
        buffer = self._buffers[partition]
        new = [record for record in records if record.offset >= buffer.end]
        if new:
            self._gather(partition, buffer, new)
        if self._is_enough() or (not records and self._unsaid):
            self.commit()

    def forget(self, partition: int) -> None:
        self._buffers.pop(partition, None)
        self.stored.pop(partition, None)

    def release(self) -> None:
        """Commits what is gathered, if it can be: partitions are about to be given back."""
        try:
            self.commit()
        except TracklogError as error:
            self.unflushed = error

    def commit(self) -> None:
        """Raises ColdError; nothing is lost then, and the same call may come again."""
        conflicts = 0
        while self._unsaid:
            try:
                self._commit_once(conflicts)
                return
            except ColdConflict:
                conflicts += 1
                if conflicts >= CONFLICTS_MAX:
                    raise
                self._tables.events.reopen()
                self._tables.undecodable.reopen()

    def _gather(self, partition: int, buffer: Buffer, records: list[Record]) -> None:
        topic = self._tables.events.identity.topic
        if records[0].offset > buffer.end and (first := self._log.bounds(topic, partition).first) > buffer.end:
            self._pass_gap(partition, buffer, first)
            records = [record for record in records if record.offset >= first]
        identity = self._tables.events.identity
        for batch in batches_of(records, buffer.end, identity, buffer.models, self._policy):
            buffer.add(batch)
            if self._waiting_since_s is None:
                self._waiting_since_s = self._clock.monotonic_s()
            if self._is_enough():
                self.commit()

    def _pass_gap(self, partition: int, buffer: Buffer, first: int) -> None:
        topic = self._tables.events.identity.topic
        if not self._accept_gap:
            self.gaps[partition] = first - buffer.end
            table = "has nothing of it" if buffer.first is not None else f"ends at offset {buffer.end}"
            raise OffsetTrimmed(
                f"{topic}, partition {partition}: the table {table}, the log is kept from {first}"
                f" on: {first - buffer.end} offsets are in neither",
                hint="restore the log, or go on without them: tracklog export --accept-gap (the gap is recorded)",
            )
        buffer.skip_to(first)

    @property
    def rows(self) -> int:
        """Rows that are gathered and in no commit yet."""
        return sum(buffer.rows for buffer in self._buffers.values())

    @property
    def _unsaid(self) -> bool:
        """Whether there are rows, or gaps that were accepted, which the table does not know of."""
        return bool(self.rows) or any(buffer.gaps for buffer in self._buffers.values())

    def _is_enough(self) -> bool:
        """By rows, bytes, or the time that the oldest has waited: by the steady clock, so no jump matters."""
        if self._waiting_since_s is None:
            return False
        if self._clock.monotonic_s() - self._waiting_since_s >= self._settings.age_s:
            return True
        held_bytes = sum(buffer.held_bytes for buffer in self._buffers.values())
        return held_bytes >= self._settings.bytes_max or self.rows >= self._settings.rows_max

    def _commit_once(self, conflicts: int) -> None:
        events = self._tables.events
        events.refresh()
        stored = {p: self._stored(p, buffer) for p, buffer in self._buffers.items()}
        late = {p: buffer for p, buffer in self._buffers.items() if buffer.end > stored[p]}
        if late:
            rows = _joined(late, stored, foreign=False, schema=events.kind.schema)
            count = self._commit_undecodable(late, stored)
            self._blobs.bring([record for p, buffer in late.items() for record in buffer.naming(stored[p])])
            now_ms = self._clock.now_us() // 1000
            added = list(staged(events, rows, self._new_name, now_ms))
            events.commit(added, self._moved(late, stored))
            self._told(rows, count, late, conflicts)
        for partition, buffer in self._buffers.items():
            if partition in late or stored[partition] > buffer.begin:
                self.stored[partition] = max(buffer.end, stored[partition])
                buffer.stored_to(self.stored[partition])
        self._waiting_since_s = None

    def _stored(self, partition: int, buffer: Buffer) -> int:
        stored = self._tables.events.next_offset(partition)
        if stored is None and buffer.first is not None:
            return buffer.begin
        if stored is None or stored < buffer.begin:
            raise ColdMismatch(
                f"{self._tables.events.uri}: partition {partition} ended at offset {buffer.begin}, and now at {stored}",
                hint="was the table restored or removed meanwhile? Start the exporter again: it goes on from the table",
            )
        return stored

    def _commit_undecodable(self, late: Mapping[int, Buffer], stored: Mapping[int, int]) -> int:
        """In a table of its own, which says for itself what is in: before the events that follow them."""
        side = self._tables.undecodable
        if not any(part.num_rows for p, buffer in late.items() for part in buffer.foreign(stored[p])):
            return 0
        side.refresh()
        known = {p: max(stored[p], side.next_offset(p) or 0) for p in late}
        rows = _joined(late, known, foreign=True, schema=side.kind.schema)
        if rows.num_rows:
            added = list(staged(side, rows, self._new_name, self._clock.now_us() // 1000))
            last = rows.group_by("partition").aggregate([("offset", "max")]).to_pylist()
            side.commit(added, {app_id(*side.identity[:2], row["partition"]): row["offset_max"] + 1 for row in last})
        return int(rows.num_rows)

    def _moved(self, late: Mapping[int, Buffer], stored: Mapping[int, int]) -> dict[str, int]:
        moved: dict[str, int] = {}
        log = self._tables.events.identity[:2]
        for partition, buffer in late.items():
            moved[app_id(*log, partition)] = buffer.end
            if buffer.first is not None:
                moved[app_id(*log, partition, "first")] = buffer.first
            for begin, end in buffer.gaps.items():
                if begin >= stored[partition]:
                    moved[app_id(*log, partition, f"gap/{begin}")] = end
        return moved

    def _told(self, rows: pa.Table, undecodable: int, late: Mapping[int, Buffer], conflicts: int) -> None:
        first_ms = min((b.first_ms for b in late.values() if b.first_ms is not None), default=None)
        waited = self._waiting_since_s
        self.on_commit(
            Committed(
                rows.num_rows,
                undecodable,
                sum(buffer.size_bytes for buffer in late.values()),
                {p: buffer.end for p, buffer in late.items()},
                0.0 if waited is None else self._clock.monotonic_s() - waited,
                0.0 if first_ms is None else self._clock.now_us() / 1e6 - first_ms / 1e3,
                conflicts,
            )
        )

    def _new_name(self) -> str:
        """Nobody else's: this start of the process drew a nonce."""
        self._named += 1
        return f"{self._start}-{self._named}"


def _joined(buffers: Mapping[int, Buffer], stored: Mapping[int, int], *, foreign: bool, schema: pa.Schema) -> pa.Table:
    """Rows of all of them, ordered by partition and offset."""
    parts = [
        part
        for partition in sorted(buffers)
        for part in (buffers[partition].foreign if foreign else buffers[partition].events)(stored[partition])
    ]
    return pa.concat_tables([schema.empty_table(), *parts])
