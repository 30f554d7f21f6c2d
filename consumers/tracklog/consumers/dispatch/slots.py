"""The attempt ledger of one call: a row of slots, and who holds each. Pure (DESIGN §8, rule 4).

Slots count from 1. The first `Attempt` or `Expired` for slot n in the log takes it, when slot n-1 is an `Attempt`
(or n is 1) and nobody has said `Done`. What comes later for a slot that is taken, or out of turn, is nobody's.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from tracklog.schemas.codec import LedgerRecord
from tracklog.schemas.ledger import Attempt, Done, Expired, Pending

__all__ = ["EMPTY", "Row", "Slot", "entered"]

_US_PER_MS: Final = 1000


class Slot(NamedTuple):
    """`nonce`: the start of a process that holds it. Times in microseconds since 1970 UTC; `appended_us` is the log's.

    `not_after` None: it is an `Expired`, and nobody tries.
    """

    nonce: bytes
    not_after: int | None
    appended_us: int

    @property
    def tries(self) -> bool:
        return self.not_after is not None


class Row(NamedTuple):
    """`pending_until`: the tool has the call under way and answers by then by itself; None when it does not.

    `unread`: there is an entry of a version not known here, which may have taken a slot; nothing behind it is judged.
    """

    slots: tuple[Slot, ...] = ()
    pending_until: int | None = None
    done: bool = False
    unread: bool = False

    @property
    def last(self) -> Slot | None:
        return self.slots[-1] if self.slots else None

    def holder(self, slot: int) -> bytes | None:
        """The nonce that holds a slot; None while it is free."""
        return self.slots[slot - 1].nonce if slot <= len(self.slots) else None


EMPTY: Final = Row()


def entered(row: Row, record: LedgerRecord, timestamp_ms: int) -> Row:
    """The row after a record of its call, as it was read from the log in order."""
    body, slot = record.body, record.envelope.slot
    if row.done or record.problem:
        return row
    if isinstance(body, Done):
        return row._replace(done=True)
    if body is None or row.unread:
        return row._replace(unread=True)
    if isinstance(body, Pending):
        return row._replace(pending_until=body.until) if slot == len(row.slots) else row
    if slot != len(row.slots) + 1 or not (row.last is None or row.last.tries):
        return row
    not_after = body.not_after if isinstance(body, Attempt) else None
    assert isinstance(body, Attempt | Expired)
    taken = Slot(record.envelope.nonce, not_after, timestamp_ms * _US_PER_MS)
    return row._replace(slots=(*row.slots, taken), pending_until=None)
