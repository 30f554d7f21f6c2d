"""What an audit remembers of records that were not accepted, and its faults so far, with bounds.

There is one fault for each seq, named by what was seen first.
"""

from __future__ import annotations

from typing import Final, NamedTuple, TypeVar

from tracklog.schemas.audit_report import FaultKind, Finding
from tracklog.schemas.limits import ACCEPTED_WINDOW

K = TypeVar("K")
V = TypeVar("V")

FINDINGS_MAX: Final = 16
SUSPECTS_MAX: Final = 8


class At(NamedTuple):
    partition: int
    offset: int


class Suspect(NamedTuple):
    """A record that breaks the chain (`broken`), unless the history goes on without it: then it was put in."""

    broken: Finding
    inserted: Finding | None


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


class Findings:
    """What is kept is bounded; `total` counts all."""

    def __init__(self) -> None:
        self.total = 0
        self._by_seq: dict[int, Finding] = {}
        self._suspects: list[Suspect] = []

    def fault(self, kind: FaultKind, seq: int, at: At | None, detail: str) -> None:
        self.record(finding(kind, seq, at, detail))

    def record(self, found: Finding) -> None:
        if found.seq in self._by_seq:
            return
        self.total += 1
        if len(self._by_seq) < FINDINGS_MAX:
            self._by_seq[found.seq] = found

    def suspect(self, suspect: Suspect) -> None:
        if len(self._suspects) < SUSPECTS_MAX:
            self._suspects.append(suspect)

    def history_goes_on(self) -> None:
        """An event was accepted: whatever seemed to break the chain before it was put in."""
        for suspect in self._suspects:
            if suspect.inserted is not None:
                self.record(suspect.inserted)
        self._suspects.clear()

    def at(self, seq: int) -> Finding | None:
        return self._by_seq.get(seq)

    def move(self, seq: int, offset: int, detail: str) -> None:
        """The fault at `seq` is another record than was thought."""
        self._by_seq[seq] = self._by_seq[seq]._replace(offset=offset, detail=detail)

    def concluded(self) -> list[Finding]:
        """All faults if the log ends here, in order of seq; a first suspect that nothing refuted is one."""
        found = dict(self._by_seq)
        if self._suspects:
            broken = self._suspects[0].broken
            found.setdefault(broken.seq, broken)
        return sorted(found.values(), key=lambda one: one.seq)


def finding(kind: FaultKind, seq: int, at: At | None, detail: str) -> Finding:
    return Finding(kind, seq, None if at is None else at.partition, None if at is None else at.offset, detail)


def put_bounded(known: dict[K, V], key: K, value: V) -> None:
    """Keeps the newest ACCEPTED_WINDOW entries."""
    if len(known) >= ACCEPTED_WINDOW:
        del known[next(iter(known))]
    known[key] = value
