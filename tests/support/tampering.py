"""What somebody with access to the log could do to it: each function gives a changed copy of a list of records."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import lru_cache

from tests.support.chains import Made
from tracklog.schemas import events as ev
from tracklog.schemas.codec import HEADER_HASH, Event, decode_event, encode_event
from tracklog.schemas.stamp import Stamp, trajectory_prefix
from tracklog.schemas.values import Body, ObservedKind

Records = list[Made]
FORGED = ev.Observed(kind=ObservedKind.STEP, name="forged", occurrence=0, value=Body.of("forged"))


@lru_cache(4096)
def decoded(made: Made) -> Event:
    return decode_event(made.key, made.value, made.headers)


def flipped(records: Sequence[Made], index: int, byte: int = -1) -> Records:
    """One bit of one byte is another; the headers stay."""
    value = bytearray(records[index].value)
    value[byte] ^= 0x01
    return [*records[:index], records[index]._replace(value=bytes(value)), *records[index + 1 :]]


def dropped(records: Sequence[Made], index: int) -> Records:
    return [*records[:index], *records[index + 1 :]]


def swapped(records: Sequence[Made], index: int) -> Records:
    return [*records[:index], records[index + 1], records[index], *records[index + 2 :]]


def edited(records: Sequence[Made], index: int) -> Records:
    """Another time of writing, with the hash header to match."""
    event = decoded(records[index])
    assert event.body is not None
    forged = _encoded(event, event.body, recorded_at=event.envelope.recorded_at + 1)
    return [*records[:index], forged, *records[index + 1 :]]


def inserted(records: Sequence[Made], index: int, body: ev.EventBody = FORGED, *, hangs: bool = True) -> Records:
    """A forged event with the seq and epoch of the one at `index`, before it; `hangs`: with the right prev_hash."""
    event = decoded(records[index])
    prev_hash = event.envelope.prev_hash if hangs else hashlib.sha256(b"nothing").digest()
    return [*records[:index], _encoded(event, body, prev_hash=prev_hash), *records[index:]]


def _encoded(event: Event, body: ev.EventBody, *, recorded_at: int = 1, prev_hash: bytes | None = None) -> Made:
    e = event.envelope
    stamp = Stamp(
        e.trajectory_id,
        trajectory_prefix(e.trajectory_id, e.tenant),
        e.seq,
        e.epoch,
        e.turn,
        lamport=e.lamport,
        recorded_at=recorded_at,
        prev_hash=e.prev_hash if prev_hash is None else prev_hash,
        inbox_id=e.inbox_id,
        inbox_position=e.inbox_position,
    )
    encoded = encode_event(stamp, body)
    assert dict(encoded.headers)[HEADER_HASH] == encoded.hash
    return Made(e.trajectory_id.encode(), encoded.value, encoded.headers, encoded.hash)
