"""Auditing the trajectories of a log: one scan of its partitions, memory bounded, each judged alone (DESIGN §5)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, Protocol

from tracklog.consumers.audit_shelf import AuditShelf
from tracklog.infra.log.partitioner import partition_of, why_stray
from tracklog.infra.log.port import Bounds, Log, Record
from tracklog.infra.log.ranges import read_range
from tracklog.infra.log.trimmed import beginning_of
from tracklog.schemas.audit import Audit
from tracklog.schemas.audit_owner import stated_trajectory_id
from tracklog.schemas.audit_report import FaultKind, Finding, Report
from tracklog.schemas.codec import HEADER_HASH, decode_event
from tracklog.schemas.errors import ForeignRecord
from tracklog.schemas.state import State

FOREIGN_SHOWN_MAX: Final = 20
PROGRESS_RECORDS: Final = 5_000


class Stored(Protocol):
    """States kept elsewhere than in the log, to compare with."""

    def state(self, trajectory_id: str) -> State | None: ...

    def states(self) -> Iterator[State]:
        """All of them; read to find those that the log does not hold at all."""


Progress = Callable[[int], None]
"""Told of how many more records were read."""


@dataclass(frozen=True, slots=True)
class Foreign:
    """A record on the events topic that is no event."""

    partition: int
    offset: int
    reason: str


@dataclass(slots=True)
class Verification:
    """Reads when `reports` is iterated; the counts are complete when it has ended."""

    log: Log
    topic: str
    only: str | None = None
    among: frozenset[str] | None = None
    """These alone; None for all."""
    stored: Stored | None = None
    on_progress: Progress | None = None
    trajectories: int = 0
    faulty: int = 0
    records: int = 0
    foreign_total: int = 0
    foreign: list[Foreign] = field(default_factory=list)

    def partitions(self) -> list[int]:
        count = self.log.partition_count(self.topic)
        if self.among is not None:
            return sorted({partition_of(one.encode(), count) for one in self.among})
        return list(range(count)) if self.only is None else [partition_of(self.only.encode(), count)]

    def reports(self) -> Iterator[Report]:
        """One for each trajectory, partition by partition; then those that are stored and not in the log."""
        seen: set[str] = set()
        for partition in self.partitions():
            for audit in self._audits(partition).drain():
                trajectory_id = audit.state.trajectory_id
                if self.stored is not None:
                    seen.add(trajectory_id)
                    yield self._count(audit.report(self.stored.state(trajectory_id)))
                else:
                    yield self._count(audit.report())
        for state in self._stored_states():
            if state.trajectory_id not in seen and state.head.seq >= 0:
                yield self._count(_absent(state))

    def _stored_states(self) -> Iterator[State]:
        if self.stored is None:
            return
        if self.only is None:
            yield from self.stored.states()
        elif (state := self.stored.state(self.only)) is not None:
            yield state

    def _audits(self, partition: int) -> AuditShelf:
        """The end is taken once, before the first read: what comes later is the next verification's."""
        bounds = self.log.bounds(self.topic, partition)
        shelf, told = AuditShelf(), 0
        for record in read_range(self.log, self.topic, partition, self._begin(partition, bounds), bounds.end):
            self._take(shelf, record, trimmed=bounds.first > 0)
            told += 1
            if told == PROGRESS_RECORDS:
                told = self._tell(told)
        self._tell(told)
        return shelf

    def _begin(self, partition: int, bounds: Bounds) -> int:
        """Nothing of those that are asked for is before it."""
        if self.among is None:
            return bounds.first
        count = self.log.partition_count(self.topic)
        own = [one.encode() for one in self.among if partition_of(one.encode(), count) == partition]
        return beginning_of(self.log, self.topic, partition, own, bounds.first)

    def _tell(self, records: int) -> int:
        self.records += records
        if self.on_progress is not None:
            self.on_progress(records)
        return 0

    def _take(self, shelf: AuditShelf, record: Record, *, trimmed: bool) -> None:
        if self.only is not None and record.key != self.only.encode():
            return
        if self.among is not None and _text(record.key) not in self.among:
            return
        stray = why_stray(record.key, record.partition, self.log.partition_count(self.topic))
        if stray:
            self._note_foreign(record, stray)
            return
        try:
            event = decode_event(record.key, record.value, record.headers)
        except ForeignRecord as error:
            self._take_foreign(shelf, record, error.message, trimmed=trimmed)
            return
        audit = self._audit(shelf, event.envelope.trajectory_id, trimmed)
        audit.add(event, record.partition, record.offset)

    def _take_foreign(self, shelf: AuditShelf, record: Record, reason: str, *, trimmed: bool) -> None:
        """With our headers it was an event of somebody: whose, says the key, or else the start of its bytes."""
        if not any(name == HEADER_HASH for name, _ in record.headers):
            self._note_foreign(record, reason)
            return
        named = [_text(record.key), stated_trajectory_id(record.value, record.headers)]
        owner = next((one for one in named if one in shelf), named[0] or named[1])
        if owner:
            self._audit(shelf, owner, trimmed).add_unreadable(reason, record.partition, record.offset)

    def _note_foreign(self, record: Record, reason: str) -> None:
        self.foreign_total += 1
        if len(self.foreign) < FOREIGN_SHOWN_MAX:
            self.foreign.append(Foreign(record.partition, record.offset, reason))

    def _audit(self, shelf: AuditShelf, trajectory_id: str, trimmed: bool) -> Audit:
        audit = shelf.get(trajectory_id)
        if audit is None:
            audit = Audit(trajectory_id, trimmed=trimmed)
            shelf.put(trajectory_id, audit)
        return audit

    def _count(self, report: Report) -> Report:
        self.trajectories += 1
        self.faulty += not report.sound
        return report


def _text(key: bytes | None) -> str:
    return "" if key is None else key.decode(errors="replace")


def _absent(state: State) -> Report:
    """A trajectory that is stored elsewhere and of which the log holds nothing."""
    detail = f"the log holds nothing of it, the stored head is at event {state.head.seq}"
    fault = Finding(FaultKind.TAIL_MISSING, 0, None, None, detail)
    empty = Audit(state.trajectory_id).report()
    return empty._replace(tenant=state.tenant, faults=(fault,), faults_total=1)
