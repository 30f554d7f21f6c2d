"""The reader's short way through an envelope: what arbitration needs, read straight from its Avro bytes.

Decoding a whole record costs some twenty times as much. Whoever needs only the verdicts of most records (see
`producers/shortcut.py`) skims them. A property test holds it equal to what decoding gives.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Skimmed", "skim"]

EVENT_ID_BYTES = 16
HASH_BYTES = 32


class Skimmed(NamedTuple):
    """Of one envelope. `taken`: the event takes a record of the inbox."""

    seq: int
    epoch: int
    prev_hash: bytes
    taken: bool


def skim(payload: bytes, prefix: bytes) -> Skimmed | None:
    """Reads the envelope of a payload that begins with `trajectory_prefix(...)`.

    None when it begins otherwise, ends too early or is not as writers write it: then it is to be decoded.
    """
    if not payload.startswith(prefix):
        return None
    try:
        seq, at = _long(payload, len(prefix))
        epoch, at = _long(payload, at)
        _, at = _long(payload, at)  # turn
        at = _past_causes(payload, at + EVENT_ID_BYTES)
        _, at = _long(payload, at)  # lamport
        _, at = _long(payload, at)  # recorded_at
        inbox_id, at = _long(payload, at)
        if inbox_id:
            at = _past_ref(payload, at)
        position, at = _long(payload, at)
        if position:
            _, at = _long(payload, at)
        key_id, at = _long(payload, at)
    except IndexError:
        return None
    prev_hash = payload[at : at + HASH_BYTES]
    if inbox_id not in (0, 1) or position not in (0, 1) or key_id or len(prev_hash) != HASH_BYTES:
        return None
    return Skimmed(seq, epoch, prev_hash, inbox_id == 1)


def _long(data: bytes, at: int) -> tuple[int, int]:
    byte = data[at]
    at += 1
    if byte < 0x80:
        return byte >> 1 if not byte & 1 else -(byte >> 1) - 1, at
    number, shift = byte & 0x7F, 7
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number >> 1 if not number & 1 else -(number >> 1) - 1, at
        shift += 7


def _past_causes(data: bytes, at: int) -> int:
    count, at = _long(data, at)
    while count:
        if count < 0:  # blocks that name their size: allowed by Avro, written by nobody here
            raise IndexError
        for _ in range(count):
            at = _past_ref(data, at)
        count, at = _long(data, at)
    return at


def _past_ref(data: bytes, at: int) -> int:
    """A text and a number."""
    length, at = _long(data, at)
    if length < 0:
        raise IndexError
    _, at = _long(data, at + length)
    return at
