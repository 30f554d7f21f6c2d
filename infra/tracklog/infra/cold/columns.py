"""The shape of the events table: one row is one record of the events topic.

Bytes are kept once: hashes and the event's id are in the payload, from which everything else can be made again.

    skipped     offsets directly before this record that the log gives nobody (control records, aborted ones): so
                offset - skipped is where the record before ends, and a row that is missing shows
    check       8 bytes of a hash over the event's hash and its place (`row_check`): an altered payload shows, also
                of an event that nothing hangs on yet, and so does a row that was moved
    stated_hash what the record's header stated where that was not the hash of its bytes, else null: it was tampered
                with before it was exported
    body        the body as JSON for people: bytes in hex. Null for a type, version or body that is not known
    payload     the raw Avro bytes behind the framing: SHA-256(fingerprint + payload) is the event's hash
    model       the model that last served this trajectory; `none` before the first reply
    date        the day of the append by the log's time, UTC
"""

from __future__ import annotations

import hashlib
from struct import Struct
from typing import Final

import pyarrow as pa

__all__ = ["EVENTS", "FILE_COLUMNS", "NO_MODEL", "PARTITIONED_BY", "UNDECODABLE", "row_check"]

NO_MODEL: Final = "none"
PARTITIONED_BY: Final = ("tenant", "date", "model")


def _fields(*columns: tuple[str, pa.DataType, bool]) -> list[pa.Field]:
    return [pa.field(name, kind, nullable=nullable) for name, kind, nullable in columns]


_PLACE: Final = _fields(
    ("cluster_id", pa.string(), False),
    ("topic_id", pa.string(), False),
    ("partition", pa.int32(), False),
    ("offset", pa.int64(), False),
    ("skipped", pa.int64(), False),
    ("append_ms", pa.int64(), False),
)
EVENTS: Final = pa.schema(
    [
        *_PLACE,
        *_fields(
            ("trajectory_id", pa.string(), False),
            ("seq", pa.int64(), False),
            ("epoch", pa.int64(), False),
            ("turn", pa.int64(), False),
            ("lamport", pa.int64(), False),
            ("event_type", pa.string(), False),
            ("type_version", pa.int32(), True),
            ("recorded_at", pa.int64(), False),
            ("inbox_source", pa.string(), True),
            ("inbox_seq", pa.int64(), True),
            ("body", pa.string(), True),
            ("fingerprint", pa.binary(), False),
            ("check", pa.int64(), False),
            ("stated_hash", pa.binary(), True),
            ("payload", pa.binary(), False),
            ("tenant", pa.string(), False),
            ("date", pa.date32(), False),
            ("model", pa.string(), False),
        ),
    ]
)
"""`recorded_at` is in microseconds since 1970 UTC, `append_ms` in milliseconds. `type_version` is null for a type
that was not known to the exporter."""
FILE_COLUMNS: Final = pa.schema([field for field in EVENTS if field.name not in PARTITIONED_BY])
"""What the Parquet files hold: the table's partition columns are in its log alone, as Delta has it."""

UNDECODABLE: Final = pa.schema(
    [
        *_PLACE,
        *_fields(
            ("reason", pa.string(), False),
            ("key", pa.binary(), True),
            ("value", pa.binary(), True),
            ("headers", pa.string(), False),
            ("date", pa.date32(), False),
        ),
    ]
)
"""The side table: records of the events topic that are no events. `headers` is JSON, [[name, hex]]."""

_PLACED: Final = Struct("<iqq")
_CHECK: Final = Struct("<q")


def row_check(event_hash: bytes, partition: int, offset: int, append_ms: int) -> int:
    """The column `check`: the first 8 bytes, little-endian and signed, of SHA-256 over the event's hash, the partition
    (4 bytes), the offset and the time of append (8 each, little-endian)."""
    digest = hashlib.sha256(event_hash + _PLACED.pack(partition, offset, append_ms)).digest()
    return int(_CHECK.unpack_from(digest)[0])
