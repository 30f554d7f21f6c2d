"""How far one trajectory is folded by a view: what tells its next accepted event, in 48 bytes."""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from tracklog.schemas.codec import Event
from tracklog.schemas.head import EMPTY_HEAD, Head, Verdict, advance, judge

FIELD: Final = b"at"
_PLACE: Final = Struct(">qq32s")


class Place(NamedTuple):
    """Of the head only epoch, seq and hash: they tell what is accepted; which verdict the others get does not matter
    here."""

    head: Head = EMPTY_HEAD

    def after(self, event: Event) -> Place | None:
        """The place after an event; None where it is not accepted."""
        judgement = judge(self.head, event)
        if judgement.verdict is not Verdict.ACCEPTED:
            return None
        head = advance(self.head, event, judgement)
        return Place(Head(head.epoch, head.seq, head.hash))

    def packed(self) -> bytes:
        return _PLACE.pack(self.head.epoch, self.head.seq, self.head.hash)


def place_of(data: bytes | None) -> Place:
    """The inverse of `packed`; the beginning for None."""
    if data is None:
        return Place()
    return Place(Head(*_PLACE.unpack(data)))
