"""The reader's short way through an envelope: whether it says what the next accepted event must say.

Decoding a whole record costs some twenty times as much. Whoever needs only the verdicts of most records (see
`producers/shortcut.py`) skims them. A property test holds it to what decoding gives.
"""

from __future__ import annotations

import re
from typing import Final

from tracklog.schemas.stamp import avro_long, avro_string, trajectory_prefix

__all__ = ["Skim"]

_LONG: Final = rb"[\x80-\xff]*[\x00-\x7f]"
_EVENT_ID: Final = rb".{16}"
_HASH: Final = rb"(.{32})"
_NOTHING: Final = rb"\x00\x00\x00"
"""No inbox id, no inbox position, no key id."""


class Skim:
    """Of one trajectory."""

    def __init__(self, trajectory_id: str, tenant: str) -> None:
        self._prefix = trajectory_prefix(trajectory_id, tenant)
        own = re.escape(avro_string(trajectory_id))
        causes = rb"(?:\x00|\x02" + own + _LONG + rb"\x00)"
        # turn, event id, causes, lamport, recorded at, ..., previous hash: one way to read it, so no two matches
        self._rest = re.compile(_LONG + _EVENT_ID + causes + _LONG + _LONG + _NOTHING + _HASH, re.DOTALL)

    def fits(self, payload: bytes, *, seq: int, epoch: int, prev_hash: bytes) -> bool:
        """Whether the envelope of this payload is of this trajectory and tenant, and says these three.

        True is sure. False says nothing: of an event that takes an inbox record, or follows from several others, it is
        always False. Then decode it.
        """
        begin = self._prefix + avro_long(seq) + avro_long(epoch)
        if not payload.startswith(begin):
            return False
        rest = self._rest.match(payload, len(begin))
        return rest is not None and rest[1] == prev_hash
