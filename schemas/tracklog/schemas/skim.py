"""The reader's short way through an envelope: whether it says what the next accepted event must say.

Decoding a whole record costs some twenty times as much. Whoever needs only the verdicts of most records (see
`producers/shortcut.py`, `consumers/dispatch/follow.py`) skims them. A property test holds it to what decoding gives.
"""

from __future__ import annotations

import re
from typing import Final

from tracklog.schemas.stamp import avro_long, avro_string

__all__ = ["NO_EXT", "Skim"]

_EVEN: Final = b"".join(b"\\x%02x" % one for one in range(0, 128, 2))
_EVEN_AND_ON: Final = b"".join(b"\\x%02x" % one for one in range(128, 256, 2))
_MORE: Final = rb"(?:[\x80-\xff]{0,7}[\x00-\x7f]|[\x80-\xff]{8}[\x00\x01])"
_COUNT: Final = rb"(?:[" + _EVEN + rb"]|[" + _EVEN_AND_ON + rb"]" + _MORE + rb")"
"""A number from 0 to 2^63 - 1: its lowest bit would be the sign."""
_TURN_AND_ID: Final = re.compile(_COUNT + rb".{16}", re.DOTALL)
_SEQ_AND_END: Final = re.compile(_COUNT + rb"\x00")
_REST: Final = re.compile(_COUNT + _COUNT + rb"\x00\x00\x00(.{32})", re.DOTALL)
"""Lamport time, recorded at; no inbox id, no inbox position, no key id; the previous hash."""
_NO_CAUSE: Final = b"\x00"
_ONE_CAUSE: Final = b"\x02"
NO_EXT: Final = b"\x00"


class Skim:
    """Of one trajectory."""

    __slots__ = ("_own", "_prefix")

    def __init__(self, trajectory_id: str, tenant: str) -> None:
        self._own = avro_string(trajectory_id)
        self._prefix = self._own + avro_string(tenant)

    def fits(self, payload: bytes, *, seq: int, epoch: int, prev_hash: bytes) -> bool:
        """Whether the envelope of this payload is of this trajectory and tenant, and says these three.

        True is sure, but for `ext`, which is not looked at. False says nothing: of an event that takes an inbox record,
        or follows from several others, it is always False. Then decode it.
        """
        return self.ext_at(payload, seq=seq, epoch=epoch, prev_hash=prev_hash) is not None

    def ext_at(self, payload: bytes, *, seq: int, epoch: int, prev_hash: bytes) -> int | None:
        """Where the `ext` of an envelope that fits begins; None for one that may not."""
        begin = self._prefix + avro_long(seq) + avro_long(epoch)
        if not payload.startswith(begin):
            return None
        found = _TURN_AND_ID.match(payload, len(begin))
        if found is None:
            return None
        at = found.end()
        causes = payload[at : at + 1]
        if causes == _ONE_CAUSE and payload.startswith(self._own, at + 1):
            found = _SEQ_AND_END.match(payload, at + 1 + len(self._own))
            at = -1 if found is None else found.end()
        else:
            at = at + 1 if causes == _NO_CAUSE else -1
        rest = None if at < 0 else _REST.match(payload, at)
        return rest.end() if rest is not None and rest[1] == prev_hash else None
