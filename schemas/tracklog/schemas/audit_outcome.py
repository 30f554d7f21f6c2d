"""The end of an audit: is what is left open a fault, or an unacknowledged tail? And does a stored head agree?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracklog.schemas.audit_findings import finding
from tracklog.schemas.audit_report import FaultKind, Finding, Report
from tracklog.schemas.state import State

if TYPE_CHECKING:
    from tracklog.schemas.audit import Audit


def conclude(audit: Audit, stored: State | None) -> Report:
    """The report on all records given so far; the audit is not changed."""
    faults, notes = audit.findings.concluded(), list(_notes(audit))
    broken = _break(audit, {one.seq for one in faults})
    if broken is not None:
        faults.append(broken)
    elif audit.waiting and not faults:
        notes.append(_tail(audit))
    if stored is not None and (differs := _against(audit, stored, faults)) is not None:
        faults.append(differs)
    if stored is not None and stored.head.seq < audit.state.head.seq:
        notes.append(f"the stored state is {audit.state.head.seq - stored.head.seq} events behind the log")
    state = audit.state
    return Report(
        trajectory_id=state.trajectory_id,
        tenant=state.tenant,
        status=state.status.value,
        partition=None if audit.first is None else audit.first.partition,
        first_offset=None if audit.first is None else audit.first.offset,
        last_offset=None if audit.last is None else audit.last.offset,
        records=audit.records,
        events=state.events,
        epoch=state.head.epoch,
        seq=state.head.seq,
        hash=state.head.hash,
        harmless=dict(state.harmless),
        unknown=state.unknown,
        faults=tuple(sorted(faults, key=lambda one: one.seq)),
        faults_total=max(audit.findings.total, len(faults)),
        notes=tuple(notes),
        unresolved=len(audit.waiting),
        partial_from=audit.partial_from,
    )


def _notes(audit: Audit) -> list[str]:
    notes = []
    if audit.partial_from is not None:
        notes.append(f"the beginning was trimmed: checked from event {audit.partial_from} on")
    if audit.abandoned:
        notes.append(f"{audit.abandoned} records were left behind a lost one by an owner that was replaced")
    if audit.state.unknown:
        notes.append(f"{audit.state.unknown} events of a type or version not known here: their bodies were not read")
    return notes


def _break(audit: Audit, named: set[int]) -> Finding | None:
    """Where the accepted history stops although something proves that it went on; None if a fault explains it."""
    head, proof = audit.state.head, audit.proof
    missing = head.seq + 1
    if proof is None or named & {head.seq, missing}:
        return None
    later = audit.waiting.get(missing)
    if later is not None and later.prev_hash == head.hash:
        detail = f"event {missing} is at offset {later.at.offset}, before it"
        return finding(FaultKind.OUT_OF_ORDER, head.seq, audit.accepted_position(head.seq), detail)
    partition = proof.at._replace(offset=-1)
    return finding(FaultKind.MISSING, missing, partition, f"it had been in the log before {proof.reason}")._replace(
        offset=None
    )


def _tail(audit: Audit) -> str:
    first = min(audit.waiting.values(), key=lambda record: record.at.offset)
    return (
        f"unacknowledged tail: {len(audit.waiting)} records beyond event {audit.state.head.seq}"
        f" (the first at offset {first.at.offset}) that were never acknowledged as a whole"
    )


def _against(audit: Audit, stored: State, faults: list[Finding]) -> Finding | None:
    """Compares with a state kept elsewhere; a broken log is not blamed twice."""
    head, other = audit.state.head, stored.head
    intruder = audit.claim_that_ended(other.epoch, other.seq)
    if intruder is not None and not faults:
        detail = f"the stored head is at event {other.seq} of the epoch before"
        return finding(FaultKind.INSERTED, *intruder, detail)
    if other.seq > head.seq:
        if faults:
            return None
        kind = FaultKind.MISSING if audit.waiting else FaultKind.TAIL_MISSING
        detail = f"the log ends at event {head.seq}, the stored head is at event {other.seq}"
        return finding(kind, head.seq + 1, None, detail)
    ours = audit.hash_at(other.seq)
    if ours is not None and ours != other.hash and not any(one.seq == other.seq for one in faults):
        detail = f"the stored head has hash {other.hash.hex()}, the log {ours.hex()}"
        return finding(FaultKind.HEAD_DIFFERS, other.seq, audit.accepted_position(other.seq), detail)
    if other.seq == head.seq and not faults and audit.partial_from is None:
        return _state_differs(audit.state, stored)
    return None


def _state_differs(ours: State, stored: State) -> Finding | None:
    """All but the counts of harmless records, which go on while the head stands still."""
    names = [
        name
        for name in State._fields
        if name not in {"harmless", "head", "faults", "fault"} and getattr(ours, name) != getattr(stored, name)
    ]
    if not names:
        return None
    detail = f"the stored state has another {', '.join(names)} than the log gives"
    return finding(FaultKind.STATE_DIFFERS, ours.head.seq, None, detail)
