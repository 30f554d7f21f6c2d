"""Whose event a damaged record was, as far as its bytes still say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tracklog.schemas.codec import split_frame
from tracklog.schemas.errors import ForeignRecord
from tracklog.schemas.limits import TRAJECTORY_ID_BYTES_MAX

_LENGTH_BYTES_MAX: Final = 2


def stated_trajectory_id(value: bytes | None, headers: Sequence[tuple[str, bytes | None]]) -> str:
    """The first field of the envelope, an Avro string; empty when the bytes do not even begin like one."""
    try:
        _, payload = split_frame(value or b"", dict(headers))
    except ForeignRecord:
        return ""
    length, used = _length(payload)
    text = payload[used : used + length]
    return text.decode(errors="replace") if len(text) == length and 0 < length <= TRAJECTORY_ID_BYTES_MAX else ""


def _length(payload: bytes) -> tuple[int, int]:
    """(length, bytes it took) of an Avro string that is no longer than an id may be; (0, 0) otherwise."""
    number = 0
    for used, byte in enumerate(payload[:_LENGTH_BYTES_MAX], start=1):
        number |= (byte & 0x7F) << 7 * (used - 1)
        if byte < 0x80:
            return number >> 1, used
    return 0, 0
