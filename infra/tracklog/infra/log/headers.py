"""Record headers as one blob, for logs that store them themselves.

Layout: length of the shape (2 bytes), the shape, the values one after the other. The shape is, for each
header, length of the name (2 bytes), the name in UTF-8, length of the value (4 bytes); all little-endian.
Records of one type share their shape, so reading one costs a look-up and one unpack.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import lru_cache
from typing import Final

from tracklog.infra.log.port import Headers
from tracklog.schemas.errors import LogFormatError

_SHAPES_MAX: Final = 4096
_U16: Final = struct.Struct("<H")
_U32: Final = struct.Struct("<I")
NO_HEADERS: Final = b"\x00\x00"


def encode_headers(headers: Headers) -> bytes:
    if not headers:
        return NO_HEADERS
    shape = _shape(tuple([(name, len(value)) for name, value in headers]))
    return shape + b"".join([value for _, value in headers])


def decode_headers(blob: bytes) -> Headers:
    """Raises LogFormatError for bytes that `encode_headers` did not write."""
    if blob == NO_HEADERS:
        return ()
    try:
        start = 2 + blob[0] + (blob[1] << 8)
        names, unpack = _fields(blob[2:start])
        return tuple(zip(names, unpack(blob[start:])))  # noqa: B905 - unpack gives one value a name
    except (struct.error, IndexError, TypeError) as error:  # a damaged file may give NULL or text for a BLOB
        raise LogFormatError(f"record headers are damaged: {error}") from error


@lru_cache(maxsize=_SHAPES_MAX)
def _shape(fields: tuple[tuple[str, int], ...]) -> bytes:
    parts = []
    for name, size in fields:
        encoded = name.encode()
        parts.append(_U16.pack(len(encoded)) + encoded + _U32.pack(size))
    shape = b"".join(parts)
    return _U16.pack(len(shape)) + shape


@lru_cache(maxsize=_SHAPES_MAX)
def _fields(shape: bytes) -> tuple[tuple[str, ...], Callable[[bytes], tuple[bytes, ...]]]:
    names: list[str] = []
    sizes: list[int] = []
    at = 0
    try:
        while at < len(shape):
            name_end = at + 2 + _U16.unpack_from(shape, at)[0]
            names.append(shape[at + 2 : name_end].decode())
            sizes.append(_U32.unpack_from(shape, name_end)[0])
            at = name_end + 4
    except (struct.error, UnicodeDecodeError) as error:
        raise LogFormatError(f"record headers are damaged: {error}") from error
    return tuple(names), struct.Struct("<" + "".join(f"{size}s" for size in sizes)).unpack
