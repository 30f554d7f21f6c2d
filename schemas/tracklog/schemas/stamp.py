"""The writer's side of the envelope: the same fields, written straight to their Avro bytes.

Encoding an envelope by its schema costs more than hashing and sending the whole event; its shape is frozen
for ever, so it is written here by hand. A property test holds it equal to what Avro makes of the schema.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from tracklog.schemas.errors import InvalidEvent
from tracklog.schemas.values import InboxId, Ref

_NULL: Final = b"\x00"
_PRESENT: Final = b"\x02"
_EMPTY: Final = b"\x00"
_SMALL: Final = tuple(bytes((n << 1,)) for n in range(64))
_NO_EXT: Final[Mapping[str, str]] = {}


def avro_long(number: int) -> bytes:
    """Avro's variable-length zig-zag encoding. Raises InvalidEvent for a number outside of 0 to 2^63 - 1."""
    if 0 <= number < 64:
        return _SMALL[number]
    if not 0 <= number < 2**63:
        raise InvalidEvent(f"{number} is not a count: it must be from 0 to 2^63 - 1")
    rest = number << 1
    if rest < 1 << 14:
        return bytes((rest & 0x7F | 0x80, rest >> 7))
    if 1 << 49 <= rest < 1 << 56:  # a time in microseconds
        return _eight_groups(rest)
    out = bytearray()
    while rest > 0x7F:
        out.append((rest & 0x7F) | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def _eight_groups(n: int) -> bytes:
    low, high = n & 0xFFFFFFF, n >> 28
    return bytes(
        (
            low & 0x7F | 0x80,
            low >> 7 & 0x7F | 0x80,
            low >> 14 & 0x7F | 0x80,
            low >> 21 | 0x80,
            high & 0x7F | 0x80,
            high >> 7 & 0x7F | 0x80,
            high >> 14 & 0x7F | 0x80,
            high >> 21,
        )
    )


def avro_string(text: str) -> bytes:
    data = text.encode()
    return avro_long(len(data)) + data


def trajectory_prefix(trajectory_id: str, tenant: str) -> bytes:
    """The first two fields, the same for every event of a trajectory."""
    return avro_string(trajectory_id) + avro_string(tenant)


class Stamp(NamedTuple):
    """What the envelope of one event will say, all but its id. Units as in `Envelope`."""

    trajectory_id: str
    prefix: bytes
    seq: int
    epoch: int
    turn: int
    lamport: int
    recorded_at: int
    prev_hash: bytes
    causes: tuple[Ref, ...] = ()
    inbox_id: InboxId | None = None
    inbox_position: int | None = None
    ext: Mapping[str, str] = _NO_EXT


def envelope_bytes(stamp: Stamp, event_id: bytes) -> bytes:
    """The Avro encoding of the envelope. `key_id` is reserved and written as null."""
    return b"".join(
        (
            stamp.prefix,
            avro_long(stamp.seq),
            avro_long(stamp.epoch),
            avro_long(stamp.turn),
            event_id,
            _causes(stamp.causes) if stamp.causes else _EMPTY,
            avro_long(stamp.lamport),
            avro_long(stamp.recorded_at),
            _NULL if stamp.inbox_id is None else _inbox_id(stamp.inbox_id),
            _NULL if stamp.inbox_position is None else _PRESENT + avro_long(stamp.inbox_position),
            _NULL,
            stamp.prev_hash,
            _ext(stamp.ext) if stamp.ext else _EMPTY,
        )
    )


def _causes(causes: tuple[Ref, ...]) -> bytes:
    items = b"".join(avro_string(ref.trajectory_id) + avro_long(ref.seq) for ref in causes)
    return avro_long(len(causes)) + items + _EMPTY


def _inbox_id(inbox_id: InboxId) -> bytes:
    return _PRESENT + avro_string(inbox_id.source) + avro_long(inbox_id.seq)


def _ext(ext: Mapping[str, str]) -> bytes:
    items = b"".join(avro_string(key) + avro_string(value) for key, value in ext.items())
    return avro_long(len(ext)) + items + _EMPTY
