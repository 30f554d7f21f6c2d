"""What an audit says of one trajectory: its faults, what was harmless, and what is left open."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple


class FaultKind(StrEnum):
    """What is wrong at an index. The fold's own words (DESIGN §5) say which record, these say what happened."""

    TAMPERED = "tampered"
    """The bytes are not what their hash header says."""
    EDITED = "edited"
    """Its bytes and hash header agree, but what follows hangs on another hash."""
    INSERTED = "inserted"
    """Two histories meet here: a record that its trajectory's owners cannot have written."""
    MISSING = "missing"
    """It had been acknowledged before a record that is in the log, and is not in the log."""
    OUT_OF_ORDER = "out of order"
    """It is in the log behind a record that was written after it."""
    TAIL_MISSING = "tail missing"
    """The log ends before a head that was stored elsewhere."""
    HEAD_DIFFERS = "head differs"
    """A head stored elsewhere has another hash for this index."""
    STATE_DIFFERS = "state differs"
    """The stored state is not what folding the log gives, at the same index."""


class Finding(NamedTuple):
    """One fault. `seq` is the index of the event that is wrong; `offset` is None when no record shows it."""

    kind: FaultKind
    seq: int
    partition: int | None
    offset: int | None
    detail: str


class Report(NamedTuple):
    """The outcome of an audit. `faults` are in order of seq: the first is the earliest event that is wrong.

    `epoch`, `seq` and `hash` are those of the last accepted event (seq -1: none). `harmless` counts records by
    verdict. `notes` are facts that are no faults, such as an unacknowledged tail. `partial_from` is the first
    seq looked at when the beginning was trimmed.
    """

    trajectory_id: str
    tenant: str
    status: str
    partition: int | None
    first_offset: int | None
    last_offset: int | None
    records: int
    events: int
    epoch: int
    seq: int
    hash: bytes
    harmless: Mapping[str, int]
    unknown: int
    faults: tuple[Finding, ...]
    faults_total: int
    notes: tuple[str, ...]
    unresolved: int
    partial_from: int | None

    @property
    def sound(self) -> bool:
        return not self.faults
