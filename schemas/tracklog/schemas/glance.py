"""Reading most envelopes by hand: what decoding by the schema gives, for a third of the time.

An envelope of the usual form (at most one cause, of its own trajectory, no inbox position, no ext) is read here
straight from its Avro bytes. Of any other, None comes back, and the schema decodes it. A property test holds the two
equal.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Final, NamedTuple

from tracklog.schemas.envelope import Envelope
from tracklog.schemas.limits import TEXT_FIELD_CHARS_MAX
from tracklog.schemas.stamp import avro_long
from tracklog.schemas.values import InboxId, Ref, check_trajectory_id

__all__ = ["Place", "read_envelope", "read_fields", "read_place"]

NAMES_KEPT: Final = 10_000
"""Trajectory ids, tenants and inbox sources that are not checked again."""
LENGTHS_KEPT: Final = 256
"""Lengths of trajectory ids whose pattern is kept."""
_EVEN: Final = bytes(range(0, 128, 2))
_COUNT: Final = (
    rb"([" + re.escape(_EVEN) + rb"]|[" + re.escape(bytes(n | 0x80 for n in _EVEN)) + rb"][\x80-\xff]{0,6}[\x00-\x7f])"
)
"""A number from 0 to 2^55 - 1 as a zig-zag varint: even, of 8 bytes at most."""
_END: Final = rb"\x00\x00(.{32})\x00"
"""No inbox position, no key id, previous hash, no ext"""
_ALONE: Final = re.compile(rb"()\x00" + _END, re.DOTALL)
"""No inbox id before them"""
_TAKEN: Final = re.compile(_COUNT + _END, re.DOTALL)
"""The inbox id's number before them"""
_ONE: Final = 2
_Match = re.Match[bytes]
_FIELDS: Final = set(Envelope.model_fields)
"""The same one for all envelopes: they are frozen, and a copy copies it."""
_set: Final = object.__setattr__


def read_envelope(key: bytes, payload: bytes) -> tuple[Envelope, int] | None:
    """The envelope of an event with this record key, and where it ends; None: decode it by the schema."""
    parts = _parts(key, payload)
    if parts is None:
        return None
    trajectory_id, tenant, first, source, last = parts
    seq, epoch, turn, event_id, _, cause, lamport, recorded_at = first.groups()
    inbox_seq, prev_hash = last.groups()
    fields: dict[str, Any] = {
        "trajectory_id": trajectory_id,
        "tenant": tenant,
        "seq": _number(seq),
        "epoch": _number(epoch),
        "turn": _number(turn),
        "event_id": event_id,
        "causes": () if cause is None else (Ref(trajectory_id=trajectory_id, seq=_number(cause)),),
        "lamport": _number(lamport),
        "recorded_at": _number(recorded_at),
        "inbox_id": None if source is None else InboxId(source=source, seq=_number(inbox_seq)),
        "inbox_position": None,
        "key_id": None,
        "prev_hash": prev_hash,
        "ext": {},
    }
    return _checked(fields), last.end()


def read_fields(key: bytes, payload: bytes) -> tuple[dict[str, Any], int] | None:
    """The same as plain values, without event id, causes and previous hash."""
    parts = _parts(key, payload)
    if parts is None:
        return None
    trajectory_id, tenant, first, source, last = parts
    seq, epoch, turn, lamport, recorded_at = first.group(1, 2, 3, 7, 8)
    fields = {
        "trajectory_id": trajectory_id,
        "tenant": tenant,
        "seq": _number(seq),
        "epoch": _number(epoch),
        "turn": _number(turn),
        "lamport": _number(lamport),
        "recorded_at": _number(recorded_at),
        "inbox_id": None if source is None else {"source": source, "seq": _number(last[1])},
        "ext": {},
    }
    return fields, last.end()


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
    return Place(trajectory_id, _number(first[1]), _number(first[2]), last[2])


def _parts(key: bytes, payload: bytes) -> tuple[str, str, _Match, str | None, _Match] | None:
    """Trajectory id, tenant, and what matched: up to the time of recording; the inbox source, if any; the rest."""
    own = _own(key)
    end = len(own)
    if not payload.startswith(own) or end >= len(payload) or payload[end] & 0x81:
        return None  # of another key, or the tenant's length is not in one byte
    at = end + 1 + (payload[end] >> 1)
    trajectory_id, tenant = _trajectory_id(key), _name(payload[end + 1 : at])
    first = _first(end).match(payload, at)
    if first is None or trajectory_id is None or tenant is None or (first[5] is not None and first[5] != own):
        return None
    after, source = first.end(), None
    if after + 1 < len(payload) and payload[after] == _ONE and not payload[after + 1] & 0x81:
        begin = after + 2
        after = begin + (payload[after + 1] >> 1)
        source = _name(payload[begin:after])
        if source is None:
            return None
    last = (_ALONE if source is None else _TAKEN).match(payload, after)
    return None if last is None else (trajectory_id, tenant, first, source, last)


@lru_cache(maxsize=NAMES_KEPT)
def _own(key: bytes) -> bytes:
    return avro_long(len(key)) + key


@lru_cache(maxsize=LENGTHS_KEPT)
def _first(own_bytes: int) -> re.Pattern[bytes]:
    """seq, epoch, turn, event id, at most one cause (its trajectory with the length before it, its seq), lamport,
    recorded at; `own_bytes`: how long a cause's trajectory is, with its length."""
    cause = rb"(?:\x00|\x02(.{%d})" % own_bytes + _COUNT + rb"\x00)"
    return re.compile(_COUNT * 3 + rb"(.{16})" + cause + _COUNT * 2, re.DOTALL)


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
def _name(raw: bytes) -> str | None:
    try:
        name = raw.decode()
    except ValueError:
        return None
    return name if 1 <= len(name) <= TEXT_FIELD_CHARS_MAX else None
