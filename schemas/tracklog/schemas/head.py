"""The head of a trajectory and the verdict on every record (DESIGN §5).

Kafka has no conditional append, so the log itself arbitrates: this fold reads content only, never offsets,
and gives each record the same verdict for every reader. First match wins:

    tampered     does not decode to what its hash header says              fault
    duplicate    its hash is among the last ACCEPTED_WINDOW accepted       harmless: a retry
    fenced       its epoch is below the head's                             harmless: a former owner
    stale        its seq is not above the head's, and it is no claim       fault only inside the window, and
                                                                           not from a lost claimant
    lost claim   a claim whose seq or prev_hash is not the head's          harmless: somebody was first
    gap          its seq is beyond the next, or its epoch above the head's harmless: see `verify`
    fork         epoch and seq fit, prev_hash does not                     fault, unless from a lost claimant
    accepted     epoch is the head's, seq the next, prev_hash its hash     the only kind that exists

Who wrote a record that is not accepted is told by what it hangs on: `lost` keeps the hashes of claims that
were not accepted and of the records behind them, so a lost claimant's pipeline is harmless [W03]. The
epoch is the number of claims accepted so far; nothing but a claim is accepted in epoch 0. Claims and
releases are told by their bodies, never by a header, so their schemas are frozen for ever like the envelope:
a reader that did not know a version of them would not count the epoch.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

from tracklog.schemas.codec import Event
from tracklog.schemas.events import OwnershipClaimed, OwnershipReleased
from tracklog.schemas.limits import ACCEPTED_WINDOW
from tracklog.schemas.values import ZERO_HASH


class Verdict(StrEnum):
    """What the log says of a record."""

    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"
    FENCED = "fenced"
    STALE = "stale"
    LOST_CLAIM = "lost claim"
    GAP = "gap"
    FORK = "fork"
    TAMPERED = "tampered"


class Judgement(NamedTuple):
    verdict: Verdict
    fault: bool


class Head(NamedTuple):
    """The part of a trajectory that arbitration needs. `seq` -1 and `epoch` 0: nothing accepted yet.

    `recent` holds the last ACCEPTED_WINDOW accepted hashes, oldest first; `lost` as many hashes of lost
    claims and what hangs on them. `owner` is the nonce of the accepted claim, None once released.
    """

    epoch: int = 0
    seq: int = -1
    hash: bytes = ZERO_HASH
    owner: bytes | None = None
    recent: tuple[bytes, ...] = ()
    lost: tuple[bytes, ...] = ()


EMPTY_HEAD: Final = Head()

_ACCEPTED: Final = Judgement(Verdict.ACCEPTED, False)
_DUPLICATE: Final = Judgement(Verdict.DUPLICATE, False)
_FENCED: Final = Judgement(Verdict.FENCED, False)
_LOST_CLAIM: Final = Judgement(Verdict.LOST_CLAIM, False)
_GAP: Final = Judgement(Verdict.GAP, False)
_TAMPERED: Final = Judgement(Verdict.TAMPERED, True)


def judge(head: Head, event: Event) -> Judgement:
    """The verdict on one record, given the head of its trajectory. Pure; the same for every reader."""
    if event.problem:
        return _TAMPERED
    envelope = event.envelope
    claim = type(event.body) is OwnershipClaimed
    fits = envelope.seq == head.seq + 1 and envelope.prev_hash == head.hash and envelope.epoch == head.epoch
    if fits:
        return _ACCEPTED if claim or head.epoch > 0 else _GAP
    if event.hash in head.recent:
        return _DUPLICATE
    if envelope.epoch < head.epoch:
        return _FENCED
    if envelope.seq <= head.seq and not claim:
        inside = envelope.seq > head.seq - ACCEPTED_WINDOW
        return Judgement(Verdict.STALE, inside and not _hangs_on_lost(head, event))
    if claim:
        return _LOST_CLAIM
    if envelope.seq > head.seq + 1 or envelope.epoch > head.epoch:
        return _GAP
    return Judgement(Verdict.FORK, not _hangs_on_lost(head, event))


def advance(head: Head, event: Event, judgement: Judgement) -> Head:
    """The head after a judged record: moved on by an accepted one, taught about lost ones."""
    if judgement.verdict is not Verdict.ACCEPTED:
        return _remember_lost(head, event, judgement)
    epoch, owner = head.epoch, head.owner
    body = event.body
    if type(body) is OwnershipClaimed:  # isinstance of a pydantic model costs five times as much, at every event
        epoch, owner = epoch + 1, body.nonce
    elif type(body) is OwnershipReleased:
        owner = None
    recent = (*head.recent[-(ACCEPTED_WINDOW - 1) :], event.hash)
    return Head(epoch, event.envelope.seq, event.hash, owner, recent, _without(head.lost, event.hash))


def _hangs_on_lost(head: Head, event: Event) -> bool:
    return event.envelope.prev_hash in head.lost


def _without(lost: tuple[bytes, ...], accepted: bytes) -> tuple[bytes, ...]:
    """A claim that came too early and was appended again is no lost one any more, nor what hangs on it."""
    return tuple(known for known in lost if known != accepted) if accepted in lost else lost


def _remember_lost(head: Head, event: Event, judgement: Judgement) -> Head:
    if judgement.verdict is Verdict.DUPLICATE:
        return head
    refused_claim = isinstance(event.body, OwnershipClaimed) and judgement.verdict in _REFUSED
    if not refused_claim and not _hangs_on_lost(head, event):
        return head
    return head._replace(lost=(*head.lost[-(ACCEPTED_WINDOW - 1) :], event.hash))


_REFUSED: Final = frozenset({Verdict.LOST_CLAIM, Verdict.FENCED})
