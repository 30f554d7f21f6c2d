"""How far one trajectory is folded by a view: what tells its next accepted event, in 48 bytes."""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from tracklog.processors.processor import Seen
from tracklog.schemas.codec import Glance
from tracklog.schemas.events import OwnershipClaimed
from tracklog.schemas.values import ZERO_HASH

FIELD: Final = b"at"
_PLACE: Final = Struct(">qq32s")
_NOWHERE: Final = -2
"""The seq of an event whose bytes cannot be believed: it is nobody's next."""


class Place(NamedTuple):
    """Of a head only epoch, seq and hash: they tell what is accepted; which verdict the others get does not matter
    here."""

    epoch: int = 0
    seq: int = -1
    hash: bytes = ZERO_HASH

    def packed(self) -> bytes:
        return _PLACE.pack(*self)


class Step:
    """One record, judged once for all views that stand at the same place. `seen` is None where nobody reads it.

    `before` and `after` are the last question and its answer. The rule is that of `head.judge` for what is accepted; a
    property test holds the two together.
    """

    __slots__ = (
        "_claim",
        "_epoch",
        "_hash",
        "_prev_hash",
        "_seq",
        "after",
        "before",
        "name",
        "offset",
        "seen",
        "trajectory_id",
    )

    def __init__(self, of: Seen | Glance, offset: int) -> None:
        self.offset = offset
        self.before: Place | None = None
        self.after: Place | None = None
        if isinstance(of, Seen):
            event = of.event
            envelope = event.envelope
            self.seen: Seen | None = of
            self.name = event.name
            self.trajectory_id = envelope.trajectory_id
            self._seq = _NOWHERE if event.problem else envelope.seq
            self._epoch, self._prev_hash, self._hash = envelope.epoch, envelope.prev_hash, event.hash
            self._claim = type(event.body) is OwnershipClaimed
        else:
            self.seen = None
            self.name, (self.trajectory_id, self._seq, self._epoch, self._prev_hash), self._hash = of
            self._claim = False

    def is_behind_beginning(self, place: Place) -> bool:
        """Whether nothing of its trajectory was accepted before, and it is not the first event: that is missing."""
        return place.seq < 0 and self._seq > 0

    def at(self, place: Place) -> Place | None:
        """The place after it; None where it is not accepted."""
        if place == self.before:
            return self.after
        self.before, self.after = place, None
        if self._seq == place.seq + 1 and self._prev_hash == place.hash and self._epoch == place.epoch:
            if self._claim:
                self.after = Place(self._epoch + 1, self._seq, self._hash)
            elif self._epoch > 0:
                self.after = Place(self._epoch, self._seq, self._hash)
        return self.after


def place_of(data: bytes | None) -> Place:
    """The inverse of `packed`; the beginning for None."""
    if data is None:
        return Place()
    return Place(*_PLACE.unpack(data))
