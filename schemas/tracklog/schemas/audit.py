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
from typing import Final, NamedTuple

from tracklog.schemas import events as ev
from tracklog.schemas.audit_report import FaultKind, Finding, Report
from tracklog.schemas.codec import Event
from tracklog.schemas.fold import fold
from tracklog.schemas.head import Head, Judgement, Verdict
from tracklog.schemas.limits import ACCEPTED_WINDOW
from tracklog.schemas.state import State
from tracklog.schemas.values import ID_BYTES, ZERO_HASH, Place, Settled

FINDINGS_MAX: Final = 16
WAITING_MAX: Final = 4096
"""Records beyond the next one that are remembered: more than a writer may have under way."""
SUSPECTS_MAX: Final = 8

_BARRIERED: Final = (ev.OwnershipClaimed, ev.TaskEnded, ev.CheckpointTaken)
_LIVE: Final = frozenset({Settled.DIRECT, Settled.REISSUED, Settled.PROBED})
_UNKNOWN_OWNER: Final = bytes(ID_BYTES)


class At(NamedTuple):
    partition: int
    offset: int


class Waiting(NamedTuple):
    """A record beyond the next one."""

    epoch: int
    hash: bytes
    prev_hash: bytes
    name: str
    barriered: bool
    at: At


class Behind(NamedTuple):
    """A claim that was not accepted, or a record that hangs on one. `seq` and `at` are those of the claim."""

    seq: int
    at: At
    barriered: bool


class Proof(NamedTuple):
    """Why event `missing` must have been in the log before the record at `at`."""

    missing: int
    at: At
    reason: str


class Suspect(NamedTuple):
    """A record that breaks the chain, unless the history goes on without it: then it was put in."""

    broken: Finding
    inserted: Finding | None


class Audit:
    """Give it the records of one trajectory in log order, then ask for the report.

    `trimmed`: the beginning of the partition is no longer kept, so the history may start in the middle.
    """

    def __init__(self, trajectory_id: str, *, trimmed: bool = False) -> None:
        self.state = State(trajectory_id)
        self.records = 0
        self._trimmed = trimmed
        self._partial_from: int | None = None
        self._first: At | None = None
        self._last: At | None = None
        self._accepted_at: deque[At] = deque(maxlen=ACCEPTED_WINDOW)
        self._faults: dict[int, Finding] = {}
        self._faults_total = 0
        self._waiting: dict[int, Waiting] = {}
        self._behind: dict[bytes, Behind] = {}
        self._stale: dict[bytes, int] = {}
        self._suspects: list[Suspect] = []
        self._proof: Proof | None = None
        self._abandoned = 0

    def add(self, event: Event, partition: int, offset: int) -> Judgement:
        """Judges the next record and takes it in."""
        at = self._see(partition, offset)
        if self.records == 1 and self._trimmed and event.envelope.seq > 0:
            self._begin_at(event)
        before = self.state.head
        self.state, judgement = fold(self.state, event)
        if judgement.verdict is Verdict.ACCEPTED:
            self._accepted(event, at, before)
        elif judgement.verdict is Verdict.TAMPERED:
            self._fault(FaultKind.TAMPERED, _index(event, before), at, event.problem)
        elif judgement.verdict is not Verdict.DUPLICATE:
            self._refused(event, at, before, judgement)
        return judgement

    def add_unreadable(self, reason: str, partition: int, offset: int) -> None:
        """A record under this trajectory's key that bears our headers and does not decode at all."""
        at = self._see(partition, offset)
        broken = self._finding(FaultKind.TAMPERED, self.state.head.seq + 1, at, reason)
        self._suspect(Suspect(broken, None))

    def _see(self, partition: int, offset: int) -> At:
        at = At(partition, offset)
        self.records += 1
        self._first = self._first if self._first is not None else at
        self._last = at
        return at

    def _begin_at(self, event: Event) -> None:
        """The beginning was trimmed: believe what the first kept record says of its place."""
        e = event.envelope
        head = Head(epoch=e.epoch, seq=e.seq - 1, hash=e.prev_hash, owner=_UNKNOWN_OWNER)
        self.state = self.state._replace(head=head)
        self._partial_from = e.seq

    # What each verdict adds to the picture.

    def _accepted(self, event: Event, at: At, before: Head) -> None:
        seq, claim = event.envelope.seq, isinstance(event.body, ev.OwnershipClaimed)
        for suspect in self._suspects:
            if suspect.inserted is not None:
                self._record(suspect.inserted)
        self._suspects.clear()
        self._accepted_at.append(at)
        if before.owner is None and before.seq >= 0 and not claim:
            self._fault(FaultKind.INSERTED, seq, at, "written after its owner had released the trajectory")
        if self._proof is not None and self._proof.missing == seq:
            self._fault(FaultKind.OUT_OF_ORDER, seq, at, f"comes after {self._proof.reason}")
            self._proof = None
        self._was_expected(event, at)
        if claim or isinstance(event.body, ev.OwnershipReleased):
            self._epoch_is_over(event)

    def _was_expected(self, event: Event, at: At) -> None:
        """Compares with what stands earlier in the log under this seq and the next."""
        seq = event.envelope.seq
        known = self._waiting.pop(seq, None)
        if known is not None and known.hash != event.hash and known.epoch == event.envelope.epoch:
            self._fault(FaultKind.INSERTED, seq, known.at, f"the owner's own event {seq} is at offset {at.offset}")
        later = self._waiting.get(seq + 1)
        if later is None or later.prev_hash != event.hash:
            return
        if _barriered(event) or later.name == ev.OwnershipReleased.__name__:
            self._fault(FaultKind.OUT_OF_ORDER, seq, at, f"comes after event {seq + 1} at offset {later.at.offset}")

    def _epoch_is_over(self, event: Event) -> None:
        """A claim or release ends what its epoch could still write; a release had all of it acknowledged."""
        epoch, released = event.envelope.epoch, isinstance(event.body, ev.OwnershipReleased)
        for seq in [seq for seq, record in self._waiting.items() if record.epoch <= epoch]:
            record = self._waiting.pop(seq)
            if released and seq > event.envelope.seq and record.epoch == epoch:
                self._fault(FaultKind.INSERTED, seq, record.at, "beyond the release of its epoch")
            else:
                self._abandoned += 1

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
            self._fault(FaultKind.INSERTED, behind.seq, self._accepted_position(behind.seq), detail)
        self._remember_behind(event, Behind(behind.seq, behind.at, _barriered(event)))

    def _refused_claim(self, event: Event, at: At, before: Head) -> None:
        seq, read = event.envelope.seq, event.envelope.seq - 1
        known = self._hash_at(read)
        if read > before.seq:
            self._prove(
                before.seq + 1, at, f"the claim {seq} at offset {at.offset}, whose writer had read event {read}"
            )
        elif known is not None and known != event.envelope.prev_hash:
            inserted = self._finding(FaultKind.INSERTED, seq, at, f"a claim that hangs on no event {read} of this log")
            if read == before.seq:
                detail = f"the claim {seq} at offset {at.offset} hangs on another hash"
                self._suspect(
                    Suspect(self._finding(FaultKind.EDITED, read, self._accepted_position(read), detail), inserted)
                )
            else:
                self._record(inserted)
        self._remember_behind(event, Behind(seq, at, False))

    def _gap(self, event: Event, at: At, before: Head) -> None:
        e = event.envelope
        if before.owner is None and before.seq >= 0 and e.epoch == before.epoch:
            self._fault(FaultKind.INSERTED, e.seq, at, "written after its owner had released the trajectory")
            return
        if e.prev_hash == before.hash and before.seq >= 0:
            detail = (
                f"says it is event {e.seq} of epoch {e.epoch} and hangs on event {before.seq} of epoch {before.epoch}"
            )
            broken = self._finding(FaultKind.EDITED, before.seq + 1, at, detail)
            self._suspect(Suspect(broken, broken._replace(kind=FaultKind.INSERTED, seq=e.seq)))
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
        prior = self._waiting.get(e.seq - 1)
        if prior is not None and prior.hash == e.prev_hash and prior.barriered:
            return f"written when {prior.name} {e.seq - 1} was durable"
        if isinstance(body, ev.ToolResult) and body.settled in _LIVE and body.call_id not in self.state.open_intents:
            return "the result of a call whose intent was durable"
        return None

    def _wait(self, event: Event, at: At) -> None:
        e = event.envelope
        known = self._waiting.get(e.seq)
        if known is not None and known.epoch == e.epoch and known.hash != event.hash:
            self._fault(
                FaultKind.INSERTED, e.seq, at, f"another event {e.seq} of its epoch is at offset {known.at.offset}"
            )
        elif known is None and len(self._waiting) < WAITING_MAX:
            self._waiting[e.seq] = Waiting(e.epoch, event.hash, e.prev_hash, event.name, _barriered(event), at)

    def _two_of_one_seq(self, event: Event, at: At) -> None:
        seq = event.envelope.seq
        accepted = self._accepted_position(seq)
        where = "" if accepted is None else f", at offset {accepted.offset}"
        self._fault(FaultKind.INSERTED, seq, at, f"another event {seq} of its epoch was accepted{where}")
        if len(self._stale) < ACCEPTED_WINDOW:
            self._stale[event.hash] = seq

    def _fork(self, event: Event, at: At, before: Head) -> None:
        seq = event.envelope.seq
        other = self._stale.get(event.envelope.prev_hash)
        if other is not None and (known := self._faults.get(other)) is not None:
            accepted = self._accepted_position(other)
            if accepted is not None and known.offset is not None:
                detail = f"the history goes on from the other event {other}, at offset {known.offset}"
                self._faults[other] = known._replace(offset=accepted.offset, detail=detail)
            return
        detail = f"event {seq} at offset {at.offset} hangs on another hash"
        broken = self._finding(FaultKind.EDITED, before.seq, self._accepted_position(before.seq), detail)
        inserted = self._finding(FaultKind.INSERTED, seq, at, f"hangs on no event {before.seq} of this log")
        self._suspect(Suspect(broken, inserted))

    # Remembering, with bounds.

    def _fault(self, kind: FaultKind, seq: int, at: At | None, detail: str) -> None:
        self._record(self._finding(kind, seq, at, detail))

    def _finding(self, kind: FaultKind, seq: int, at: At | None, detail: str) -> Finding:
        partition = at.partition if at is not None else self._last.partition if self._last is not None else None
        return Finding(kind, seq, partition, None if at is None else at.offset, detail)

    def _record(self, finding: Finding) -> None:
        """One fault for each seq: the first thing seen names what happened."""
        if finding.seq in self._faults:
            return
        self._faults_total += 1
        if len(self._faults) < FINDINGS_MAX:
            self._faults[finding.seq] = finding

    def _suspect(self, suspect: Suspect) -> None:
        if len(self._suspects) < SUSPECTS_MAX:
            self._suspects.append(suspect)

    def _prove(self, missing: int, at: At, reason: str) -> None:
        if self._proof is None:
            self._proof = Proof(missing, at, reason)

    def _remember_behind(self, event: Event, behind: Behind) -> None:
        if len(self._behind) >= ACCEPTED_WINDOW:
            del self._behind[next(iter(self._behind))]
        self._behind[event.hash] = behind

    def _hash_at(self, seq: int) -> bytes | None:
        """The hash of the accepted event at `seq`; None when it is not accepted or no longer remembered."""
        head = self.state.head
        if seq == -1 and self._partial_from is None:
            return ZERO_HASH
        back = head.seq - seq
        return head.recent[-1 - back] if 0 <= back < len(head.recent) else None

    def _accepted_position(self, seq: int) -> At | None:
        back = self.state.head.seq - seq
        return self._accepted_at[-1 - back] if 0 <= back < len(self._accepted_at) else None

    # The outcome.

    def report(self, stored: State | None = None) -> Report:
        """What the records so far say. `stored` is a state kept elsewhere, to be found in this history."""
        from tracklog.schemas.audit_outcome import conclude

        return conclude(self, stored)


def _barriered(event: Event) -> bool:
    """Its writer waits until it is durable before it goes on."""
    body = event.body
    return isinstance(body, _BARRIERED) or (isinstance(body, ev.ToolIntent) and body.place is not Place.RECORDED)


def _index(event: Event, before: Head) -> int:
    """Which event a tampered record was: if it hangs on the head, the next, whatever its seq says now."""
    return before.seq + 1 if event.envelope.prev_hash == before.hash else event.envelope.seq
