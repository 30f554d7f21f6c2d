"""Reading most envelopes by hand: what decoding by the schema gives, for a third of the time.

An envelope of the usual form (no inbox record, at most one cause, of its own trajectory, no ext) is read here straight
from its Avro bytes. Of any other, None comes back, and the schema decodes it. A property test holds the two equal.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Final, NamedTuple

from tracklog.schemas.envelope import Envelope
from tracklog.schemas.limits import TEXT_FIELD_CHARS_MAX
from tracklog.schemas.stamp import avro_long
from tracklog.schemas.values import Ref, check_trajectory_id

__all__ = ["Place", "read_envelope", "read_place"]

NAMES_KEPT: Final = 10_000
"""Trajectory ids and tenants that are not checked again."""
_EVEN: Final = bytes(range(0, 128, 2))
_COUNT: Final = (
    rb"([" + re.escape(_EVEN) + rb"]|[" + re.escape(bytes(n | 0x80 for n in _EVEN)) + rb"][\x80-\xff]{0,6}[\x00-\x7f])"
)
"""A number from 0 to 2^55 - 1 as a zig-zag varint: even, of 8 bytes at most."""
_FIRST: Final = re.compile(_COUNT * 3 + rb"(.{16})", re.DOTALL)
"""seq, epoch, turn, event id"""
_CAUSE: Final = re.compile(_COUNT + rb"\x00")
_LAST: Final = re.compile(rb"\x00" + _COUNT * 2 + rb"\x00\x00\x00(.{32})\x00", re.DOTALL)
"""End of the causes, lamport, recorded at, no inbox id, no inbox position, no key id, previous hash, no ext"""
_ONE: Final = b"\x02"
_Match = re.Match[bytes]
_FIELDS: Final = set(Envelope.model_fields)
"""The same one for all envelopes: they are frozen, and a copy copies it."""
_set: Final = object.__setattr__


def read_envelope(key: bytes, payload: bytes) -> tuple[Envelope, int] | None:
    """The envelope of an event with this record key, and where it ends; None: decode it by the schema."""
    parts = _parts(key, payload)
    if parts is None:
        return None
    trajectory_id, tenant, first, cause, last = parts
    seq, epoch, turn, event_id = first.groups()
    lamport, recorded_at, prev_hash = last.groups()
    fields: dict[str, Any] = {
        "trajectory_id": trajectory_id,
        "tenant": tenant,
        "seq": _number(seq),
        "epoch": _number(epoch),
        "turn": _number(turn),
        "event_id": event_id,
        "causes": () if cause is None else (Ref(trajectory_id=trajectory_id, seq=_number(cause[1])),),
        "lamport": _number(lamport),
        "recorded_at": _number(recorded_at),
        "inbox_id": None,
        "inbox_position": None,
        "key_id": None,
        "prev_hash": prev_hash,
        "ext": {},
    }
    return _checked(fields), last.end()


class Place(NamedTuple):
    """Where an event says that it stands in its trajectory."""

    trajectory_id: str
    seq: int
    epoch: int
    prev_hash: bytes


def read_place(key: bytes, payload: bytes) -> Place | None:
    """Of an event whose envelope `read_envelope` reads; None else."""
    parts = _parts(key, payload)
    if parts is None:
        return None
    trajectory_id, _, first, _, last = parts
    return Place(trajectory_id, _number(first[1]), _number(first[2]), last[3])


def _parts(key: bytes, payload: bytes) -> tuple[str, str, _Match, _Match | None, _Match] | None:
    """Trajectory id, tenant, and what matched: the first numbers, the cause if there is one, the rest."""
    size = avro_long(len(key))
    own = size + key
    end = len(own)
    if not payload.startswith(own) or end >= len(payload) or payload[end] & 0x81:
        return None  # of another key, or the tenant's length is not in one byte
    at = end + 1 + (payload[end] >> 1)
    trajectory_id, tenant = _trajectory_id(key), _tenant(payload[end + 1 : at])
    first = _FIRST.match(payload, at)
    if first is None or trajectory_id is None or tenant is None:
        return None
    after, cause = first.end(), None
    if payload[after : after + 1] == _ONE:
        if not payload.startswith(own, after + 1):
            return None
        cause = _CAUSE.match(payload, after + 1 + end)
        if cause is None:
            return None
        after = cause.end() - 1
    last = _LAST.match(payload, after)
    return None if last is None else (trajectory_id, tenant, first, cause, last)


def _checked(fields: dict[str, Any]) -> Envelope:
    """An envelope of fields that hold all of its checks already: what the model does after validating."""
    envelope = Envelope.__new__(Envelope)
    _set(envelope, "__dict__", fields)
    _set(envelope, "__pydantic_fields_set__", _FIELDS)
    _set(envelope, "__pydantic_extra__", None)
    _set(envelope, "__pydantic_private__", None)
    return envelope


def _number(raw: bytes) -> int:
    """From a varint of 8 bytes at most that is not negative: its groups of 7 bits pushed together."""
    if len(raw) == 1:
        return raw[0] >> 1
    n = int.from_bytes(raw, "little")
    n = n & 0x007F007F007F007F | (n & 0x7F007F007F007F00) >> 1
    n = n & 0x00003FFF00003FFF | (n & 0x3FFF00003FFF0000) >> 2
    return (n & 0x0FFFFFFF | (n & 0x0FFFFFFF00000000) >> 4) >> 1


@lru_cache(maxsize=NAMES_KEPT)
def _trajectory_id(key: bytes) -> str | None:
    try:
        return check_trajectory_id(key.decode())
    except ValueError:
        return None


@lru_cache(maxsize=NAMES_KEPT)
def _tenant(raw: bytes) -> str | None:
    try:
        tenant = raw.decode()
    except ValueError:
        return None
    return tenant if 1 <= len(tenant) <= TEXT_FIELD_CHARS_MAX else None
