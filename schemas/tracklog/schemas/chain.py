"""The hash of an event and its id (DESIGN §4). Both are fixed for ever.

    hash      SHA-256 over fingerprint (8 bytes, little-endian CRC-64-AVRO) and Avro payload, that is over
              the single-object encoding after `C3 01`, whatever the framing on the wire
    event_id  first 16 bytes of SHA-256 over trajectory id (UTF-8), a zero byte, epoch and seq as 8
              big-endian bytes each, and the Avro bytes of the body

The next event carries the hash as `prev_hash`. The id does not depend on the time or the order of an
append: the same event appended again is the same event.
"""

from __future__ import annotations

import hashlib
from struct import Struct

_EPOCH_SEQ = Struct(">QQ")


def event_hash(fingerprint: bytes, payload: bytes) -> bytes:
    return hashlib.sha256(fingerprint + payload).digest()


def event_id(trajectory_id: str, epoch: int, seq: int, body: bytes) -> bytes:
    return hashlib.sha256(trajectory_id.encode() + b"\x00" + _EPOCH_SEQ.pack(epoch, seq) + body).digest()[:16]
