"""How large one record may be: the same bound on every log, so that a run fits wherever it is moved."""

from __future__ import annotations

from typing import Final

from tracklog.infra.log.port import Headers
from tracklog.schemas.errors import RecordTooLarge
from tracklog.schemas.limits import EVENT_BYTES_MAX, MESSAGE_BYTES_MAX

RECORD_OVERHEAD_BYTES: Final = 1024
"""Kafka's batch header (61 bytes), the record's varints, and room to spare."""
HEADER_OVERHEAD_BYTES: Final = 10
"""Two varint lengths for each header."""
RECORD_BYTES_MAX: Final = MESSAGE_BYTES_MAX - RECORD_OVERHEAD_BYTES
"""Key, value and headers of one record; a record of this size still passes `max.message.bytes`."""

assert EVENT_BYTES_MAX < RECORD_BYTES_MAX


def record_bytes(key: bytes, value: bytes, headers: Headers) -> int:
    """Size in bytes as it counts against RECORD_BYTES_MAX."""
    size = len(key) + len(value)
    for name, content in headers:
        size += len(name) + len(content) + HEADER_OVERHEAD_BYTES
    return size


def check_record_size(topic: str, key: bytes, value: bytes, headers: Headers) -> int:
    """The size of the record in bytes; RecordTooLarge when it is above the bound."""
    size = record_bytes(key, value, headers)
    if size > RECORD_BYTES_MAX:
        raise RecordTooLarge(
            f"a record of {size} bytes for {topic}, key {key[:64]!r}, exceeds {RECORD_BYTES_MAX}",
            hint="put large bodies into the blob store first",
        )
    return size
