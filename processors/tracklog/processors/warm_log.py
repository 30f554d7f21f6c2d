"""The warm log: the newest records of each trajectory as the log holds them, and a list of all its offsets.

Kafka cannot read one key. The records kept here show a trajectory without scanning its partition; the offsets say
where the others lie. Both are hints: the hash chain says whether they are all there.

    entry     offset, append time (8 bytes each), value length (4), value, then per header: name length (1), name,
              value length (4), value; numbers big-endian
    offsets   each as the distance from the one before (the first from 0), 7 bits a byte, low bits first
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from struct import Struct
from typing import Final

from tracklog.infra.log.port import Record
from tracklog.processors.trajectory import Trajectory
from tracklog.processors.writes import Clear, Extend, Keep, Shelf

SIZES_KEY: Final = "log-bytes"
TOTALS_KEY: Final = "log-bytes-of"
"""Hash: by tenant, the bytes of what is kept of its trajectories."""

_ENTRY: Final = Struct(">qqI")
_LENGTH: Final = Struct(">I")
NAMES_KEPT: Final = 256
"""Names of headers that are not encoded again."""


def log_key(trajectory_id: str) -> str:
    return f"log:{trajectory_id}"


def offsets_key(trajectory_id: str) -> str:
    return f"offsets:{trajectory_id}"


def kept_key(tenant: str) -> str:
    """Key of the sorted set of trajectories of a tenant of which something is kept."""
    return f"logs:{tenant}"


def clearing(trajectory: Trajectory) -> Clear:
    name, tenant = trajectory.trajectory_id, trajectory.state.tenant
    return Clear(log_key(name), SIZES_KEY, name, _shelf(tenant))


def _shelf(tenant: str) -> Shelf:
    return Shelf(kept_key(tenant), TOTALS_KEY, tenant)


@dataclass(frozen=True, slots=True)
class WarmLogBounds:
    """How much of one trajectory is kept: its newest events, until `age_ms` after the last of them. `tenant_bytes_max`:
    of all of a tenant in a partition, 0 for no bound."""

    events_max: int
    bytes_max: int
    age_ms: int
    tenant_bytes_max: int = 0


def warm_log_writes(
    before: Trajectory | None, after: Trajectory, records: Sequence[Record], bounds: WarmLogBounds
) -> Iterator[Keep | Clear | Extend]:
    last_offset = 0 if before is None else before.last_offset
    offsets = encode_offsets((record.offset for record in records), last_offset)
    yield Extend(offsets_key(after.trajectory_id), offsets)
    if before is not None and before.state.tenant != after.state.tenant:
        yield clearing(before)
    if bounds.events_max > 0 and bounds.bytes_max > 0:
        yield Keep(
            log_key(after.trajectory_id),
            SIZES_KEY,
            after.trajectory_id,
            [encode_entry(record) for record in records[-bounds.events_max :]],
            bounds.events_max,
            bounds.bytes_max,
            after.last_ms + bounds.age_ms,
            _shelf(after.state.tenant),
            after.last_ms,
            bounds.tenant_bytes_max,
        )


def encode_entry(record: Record) -> bytes:
    value = record.value or b""
    parts = [_ENTRY.pack(record.offset, record.timestamp_ms, len(value)), value]
    for name, content in record.headers:
        parts += (_name(name), _LENGTH.pack(len(content)), content)
    return b"".join(parts)


@lru_cache(maxsize=NAMES_KEPT)
def _name(name: str) -> bytes:
    raw = name.encode()
    return bytes((len(raw),)) + raw


def decode_entry(entry: bytes, topic: str, partition: int, key: bytes) -> Record:
    """The record an entry was made of."""
    offset, timestamp_ms, value_bytes = _ENTRY.unpack_from(entry)
    at = _ENTRY.size + value_bytes
    headers = tuple(_headers(entry, at))
    return Record(topic, partition, offset, timestamp_ms, key, entry[_ENTRY.size : at], headers)


def _headers(entry: bytes, at: int) -> Iterator[tuple[str, bytes]]:
    while at < len(entry):
        name_end = at + 1 + entry[at]
        (length,) = _LENGTH.unpack_from(entry, name_end)
        end = name_end + _LENGTH.size + length
        yield entry[at + 1 : name_end].decode(), entry[name_end + _LENGTH.size : end]
        at = end


def encode_offsets(offsets: Iterable[int], previous: int) -> bytes:
    """Rising offsets as distances. `previous` is the last offset already written, 0 before the first."""
    out = bytearray()
    for offset in offsets:
        distance, previous = offset - previous, offset
        while distance > 0x7F:
            out.append((distance & 0x7F) | 0x80)
            distance >>= 7
        out.append(distance)
    return bytes(out)


def decode_offsets(data: bytes) -> list[int]:
    offsets: list[int] = []
    offset = distance = shift = 0
    for byte in data:
        distance |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            offset += distance
            offsets.append(offset)
            distance = shift = 0
    return offsets
