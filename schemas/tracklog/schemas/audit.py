"""The audit of one trajectory: what the verdicts of the whole log add up to (DESIGN §5). Pure; memory is bounded.

A verdict judges a record by what lies before it. An audit has the whole log, so it can tell a record that an
owner never got acknowledged (harmless) from one that was taken out, moved or put in. It rests on what writers do:

    claims      a claimant folds the log first, so a claim hangs on the event that was accepted at seq - 1, and
                reads its claim back before it appends anything
    barriers    a release is written when all before it is durable; what follows a TaskEnded, CheckpointTaken,
                claim or live ToolIntent, or reports a live call, was written when that was durable
    owners      write one event for each seq, append the same bytes again when in doubt, and nothing after a release

A record beyond the next one whose writer must have seen the missing one durable proves a fault; without such a
proof it is an unacknowledged tail. Each break of the chain is one fault: its consequences are not counted again.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from tracklog.schemas import events as ev
from tracklog.schemas.audit_findings import At, Behind, Findings, Proof, Suspect, Waiting, finding, put_bounded
from tracklog.schemas.audit_outcome import conclude
from tracklog.schemas.audit_report import FaultKind, Report
from tracklog.schemas.codec import Event
from tracklog.schemas.fold import fold
from tracklog.schemas.head import Head, Judgement, Verdict
from tracklog.schemas.limits import ACCEPTED_WINDOW
from tracklog.schemas.state import State
from tracklog.schemas.values import ID_BYTES, ZERO_HASH, Place, Settled

WAITING_MAX: Final = 4096
"""Records beyond the next one that are remembered: more than a writer may have under way."""

_BARRIERED: Final = (ev.OwnershipClaimed, ev.TaskEnded, ev.CheckpointTaken)
_LIVE: Final = frozenset({Settled.DIRECT, Settled.REISSUED, Settled.PROBED})
_UNKNOWN_OWNER: Final = bytes(ID_BYTES)


class Audit:
    """Give it the records of one trajectory in log order, then ask for the report.

    `trimmed`: the beginning of the partition is no longer kept, so the history may start in the middle.
    """

    def __init__(self, trajectory_id: str, *, trimmed: bool = False) -> None:
        self.state = State(trajectory_id)
        self.records = 0
        self._trimmed = trimmed
        self.partial_from: int | None = None
        self.first: At | None = None
        self.last: At | None = None
        self._accepted_at: deque[At] = deque(maxlen=ACCEPTED_WINDOW)
        self.findings = Findings()
        self.waiting: dict[int, Waiting] = {}
        self._behind: dict[bytes, Behind] = {}
        self._stale: dict[bytes, int] = {}
        self._ended: dict[int, tuple[int, At]] = {}
        self.proof: Proof | None = None
        self.abandoned = 0

    def add(self, event: Event, partition: int, offset: int) -> Judgement:
        """Judges the next record and takes it in."""
        at = self._see(partition, offset)
        if self._trimmed and self._begins_late(event):
            self._begin_at(event)
        before = self.state.head
        self.state, judgement = fold(self.state, event)
        if judgement.verdict is Verdict.ACCEPTED:
            self._accepted(event, at, before)
        elif judgement.verdict is Verdict.TAMPERED:
            self.findings.fault(FaultKind.TAMPERED, _index(event, before), at, event.problem)
        elif judgement.verdict is not Verdict.DUPLICATE:
            self._refused(event, at, before, judgement)
        return judgement

    def add_unreadable(self, reason: str, partition: int, offset: int) -> None:
        """A record under this trajectory's key that bears our headers and does not decode at all."""
        at = self._see(partition, offset)
        broken = finding(FaultKind.TAMPERED, self.state.head.seq + 1, at, reason)
        self.findings.suspect(Suspect(broken, None))

    def _see(self, partition: int, offset: int) -> At:
        at = At(partition, offset)
        self.records += 1
        self.first = self.first if self.first is not None else at
        self.last = at
        return at

    def _begins_late(self, event: Event) -> bool:
        unseen = self.partial_from is None and self.state.head.seq == -1
        return unseen and event.envelope.seq > 0 and not event.problem

    def _begin_at(self, event: Event) -> None:
        """The beginning was trimmed: believe what the first kept record says of its place."""
        e = event.envelope
        head = Head(epoch=e.epoch, seq=e.seq - 1, hash=e.prev_hash, owner=_UNKNOWN_OWNER)
        self.state = self.state._replace(head=head)
        self.partial_from = e.seq

    def _accepted(self, event: Event, at: At, before: Head) -> None:
        seq, claim = event.envelope.seq, isinstance(event.body, ev.OwnershipClaimed)
        self.findings.history_goes_on()
        self._accepted_at.append(at)
        if before.owner is None and before.seq >= 0 and not claim:
            self.findings.fault(FaultKind.INSERTED, seq, at, "written after its owner had released the trajectory")
        if self.proof is not None and self.proof.missing == seq:
            self.findings.fault(FaultKind.OUT_OF_ORDER, seq, at, f"comes after {self.proof.reason}")
            self.proof = None
        self._was_expected(event, at)
        if claim:
            put_bounded(self._ended, event.envelope.epoch, (seq, at))
        if claim or isinstance(event.body, ev.OwnershipReleased):
            self._epoch_is_over(event)

    def _was_expected(self, event: Event, at: At) -> None:
        """Compares with what stands earlier in the log under this seq and the next."""
        seq = event.envelope.seq
        known = self.waiting.pop(seq, None)
        if known is not None and _rivals(known, event):
            self.findings.fault(
                FaultKind.INSERTED, seq, known.at, f"the owner's own event {seq} is at offset {at.offset}"
            )
        later = self.waiting.get(seq + 1)
        if later is None or later.prev_hash != event.hash:
            return
        if _barriered(event) or later.name == ev.OwnershipReleased.__name__:
            self.findings.fault(
                FaultKind.OUT_OF_ORDER, seq, at, f"comes after event {seq + 1} at offset {later.at.offset}"
            )

    def _epoch_is_over(self, event: Event) -> None:
        """A claim or release ends what its epoch could still write; a release had all of it acknowledged."""
        epoch, released = event.envelope.epoch, isinstance(event.body, ev.OwnershipReleased)
        for seq in [seq for seq, record in self.waiting.items() if record.epoch <= epoch]:
            record = self.waiting.pop(seq)
            if released and seq > event.envelope.seq and record.epoch == epoch:
                self.findings.fault(FaultKind.INSERTED, seq, record.at, "beyond the release of its epoch")
            else:
                self.abandoned += 1

    def _refused(self, event: Event, at: At, before: Head, judgement: Judgement) -> None:
        behind = self._behind.get(event.envelope.prev_hash)
        if behind is not None:
            self._behind_lost(event, at, behind)
        elif isinstance(event.body, ev.OwnershipClaimed):
            self._refused_claim(event, at, before)
        elif judgement.verdict is Verdict.GAP:
            self._gap(event, at, before)
        elif judgement.verdict is Verdict.STALE and judgement.fault:
            self._two_of_one_seq(event, at)
        elif judgement.verdict is Verdict.FORK and judgement.fault:
            self._fork(event, at, before)

    def _behind_lost(self, event: Event, at: At, behind: Behind) -> None:
        """Hangs on a claim that was not accepted. Its writer cannot have come this far without reading back."""
        if isinstance(event.body, ev.OwnershipReleased | ev.OwnershipClaimed) or behind.barriered:
            detail = f"the claim at offset {behind.at.offset} had won this seq: event {event.envelope.seq}"
            detail += f" at offset {at.offset} goes on from it"
            self.findings.fault(FaultKind.INSERTED, behind.seq, self.accepted_position(behind.seq), detail)
        put_bounded(self._behind, event.hash, Behind(behind.seq, behind.at, _barriered(event)))

    def _refused_claim(self, event: Event, at: At, before: Head) -> None:
        seq, read = event.envelope.seq, event.envelope.seq - 1
        known, intruder = self.hash_at(read), self.claim_that_ended(event.envelope.epoch, read)
        if intruder is not None:
            detail = (
                f"the claim {seq} at offset {at.offset} was made by one who had read event {read} of the epoch before"
            )
            self.findings.fault(FaultKind.INSERTED, *intruder, detail)
        elif read > before.seq:
            self._prove(
                before.seq + 1, at, f"the claim {seq} at offset {at.offset}, whose writer had read event {read}"
            )
        elif self._goes_on_from_stale(event):
            return
        elif known is not None and known != event.envelope.prev_hash:
            inserted = finding(FaultKind.INSERTED, seq, at, f"a claim that hangs on no event {read} of this log")
            if read == before.seq:
                detail = f"the claim {seq} at offset {at.offset} hangs on another hash"
                self.findings.suspect(
                    Suspect(finding(FaultKind.EDITED, read, self.accepted_position(read), detail), inserted)
                )
            else:
                self.findings.record(inserted)
        else:
            put_bounded(self._behind, event.hash, Behind(seq, at, False))

    def _gap(self, event: Event, at: At, before: Head) -> None:
        e = event.envelope
        if before.owner is None and before.seq >= 0 and e.epoch == before.epoch:
            self.findings.fault(FaultKind.INSERTED, e.seq, at, "written after its owner had released the trajectory")
            return
        if e.prev_hash == before.hash and before.seq >= 0:
            detail = (
                f"says it is event {e.seq} of epoch {e.epoch} and hangs on event {before.seq} of epoch {before.epoch}"
            )
            broken = finding(FaultKind.EDITED, before.seq + 1, at, detail)
            self.findings.suspect(Suspect(broken, broken._replace(kind=FaultKind.INSERTED, seq=e.seq)))
            return
        if (reason := self._needs(event, before)) is not None:
            self._prove(before.seq + 1, at, f"event {e.seq} at offset {at.offset}, {reason}")
        self._wait(event, at)

    def _needs(self, event: Event, before: Head) -> str | None:
        """Why the writer of this record must have seen everything before it durable; None if it need not."""
        e, body = event.envelope, event.body
        if e.epoch > before.epoch:
            return "whose epoch began with a claim that was read back"
        if isinstance(body, ev.OwnershipReleased):
            return "a release, written when all before it was durable"
        prior = self.waiting.get(e.seq - 1)
        if prior is not None and prior.hash == e.prev_hash and prior.barriered:
            return f"written when {prior.name} {e.seq - 1} was durable"
        if isinstance(body, ev.ToolResult) and body.settled in _LIVE and body.call_id not in self.state.open_intents:
            return "the result of a call whose intent was durable"
        return None

    def _wait(self, event: Event, at: At) -> None:
        e = event.envelope
        known = self.waiting.get(e.seq)
        if known is not None and _rivals(known, event):
            self.findings.fault(
                FaultKind.INSERTED, e.seq, at, f"another event {e.seq} of its epoch is at offset {known.at.offset}"
            )
        elif known is None and len(self.waiting) < WAITING_MAX:
            self.waiting[e.seq] = Waiting(e.epoch, event.hash, e.prev_hash, event.name, _barriered(event), at)

    def _two_of_one_seq(self, event: Event, at: At) -> None:
        seq = event.envelope.seq
        accepted = self.accepted_position(seq)
        where = "" if accepted is None else f", at offset {accepted.offset}"
        self.findings.fault(FaultKind.INSERTED, seq, at, f"another event {seq} of its epoch was accepted{where}")
        put_bounded(self._stale, event.hash, seq)

    def _fork(self, event: Event, at: At, before: Head) -> None:
        seq = event.envelope.seq
        if self._goes_on_from_stale(event):
            return
        detail = f"event {seq} at offset {at.offset} hangs on another hash"
        broken = finding(FaultKind.EDITED, before.seq, self.accepted_position(before.seq), detail)
        inserted = finding(FaultKind.INSERTED, seq, at, f"hangs on no event {before.seq} of this log")
        self.findings.suspect(Suspect(broken, inserted))

    def _goes_on_from_stale(self, event: Event) -> bool:
        """Of two events of one seq the history goes on from the refused one: the accepted one was put in."""
        seq = self._stale.get(event.envelope.prev_hash)
        if seq is None:
            return False
        known, accepted = self.findings.at(seq), self.accepted_position(seq)
        if known is not None and accepted is not None:
            detail = f"the history goes on from the other event {seq}, at offset {known.offset}"
            self.findings.move(seq, accepted.offset, detail)
        return True

    def claim_that_ended(self, epoch: int, read: int) -> tuple[int, At] | None:
        """The accepted claim after `epoch`, if somebody has read an event of that epoch at its seq or later."""
        ended = self._ended.get(epoch)
        return ended if ended is not None and read >= ended[0] else None

    def _prove(self, missing: int, at: At, reason: str) -> None:
        if self.proof is None:
            self.proof = Proof(missing, at, reason)

    def hash_at(self, seq: int) -> bytes | None:
        """The hash of the accepted event at `seq`; None when it is not accepted or no longer remembered."""
        head = self.state.head
        if seq == -1 and self.partial_from is None:
            return ZERO_HASH
        back = head.seq - seq
        return head.recent[-1 - back] if 0 <= back < len(head.recent) else None

    def accepted_position(self, seq: int) -> At | None:
        back = self.state.head.seq - seq
        return self._accepted_at[-1 - back] if 0 <= back < len(self._accepted_at) else None

    # The outcome.

    def report(self, stored: State | None = None) -> Report:
        """What the records so far say. `stored` is a state kept elsewhere, to be found in this history."""
        return conclude(self, stored)


def _barriered(event: Event) -> bool:
    """Its writer waits until it is durable before it goes on."""
    body = event.body
    return isinstance(body, _BARRIERED) or (isinstance(body, ev.ToolIntent) and body.place is not Place.RECORDED)


def _rivals(known: Waiting, event: Event) -> bool:
    """Two events of one owner under one seq; a claim is a successor's, though it bears the epoch it ends."""
    by_one_owner = known.epoch == event.envelope.epoch and ev.OwnershipClaimed.__name__ not in (known.name, event.name)
    return by_one_owner and known.hash != event.hash


def _index(event: Event, before: Head) -> int:
    """Which event a tampered record was: if it hangs on the head, the next, whatever its seq says now."""
    return before.seq + 1 if event.envelope.prev_hash == before.hash else event.envelope.seq
