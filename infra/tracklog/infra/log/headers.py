"""Record headers as one blob, for logs that store them themselves.

Layout: length of the shape (2 bytes), the shape, the values one after the other. The shape is, for each
header, length of the name (2 bytes), the name in UTF-8, length of the value (4 bytes); all little-endian.
Records of one type share their shape, so reading one costs a look-up and one unpack.

The shape of our own records, of which there are many, is short: the number of the name and the length of the value in
one byte each. The highest bit of the shape's length says so.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Final

from tracklog.infra.log.port import Headers
from tracklog.schemas.catalog import HEADER_SCHEMA, HEADER_TYPE
from tracklog.schemas.codec import HEADER_HASH
from tracklog.schemas.errors import LogFormatError, RecordTooLarge

_SHAPES_MAX: Final = 4096
_U16: Final = struct.Struct("<H")
_U32: Final = struct.Struct("<I")
_SHORT: Final = 1 << 15
NO_HEADERS: Final = b"\x00\x00"
OWN_NAMES: Final = (HEADER_TYPE, HEADER_SCHEMA, HEADER_HASH)
"""Their places are their numbers, which are fixed for ever."""


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
        start = 2 + blob[0] + ((blob[1] & 0x7F) << 8)
        names, unpack = (_own_fields if blob[1] & 0x80 else _fields)(blob[2:start])
        return tuple(zip(names, unpack(blob[start:])))  # noqa: B905 - unpack gives one value a name
    except (struct.error, IndexError, TypeError) as error:  # a damaged file may give NULL or text for a BLOB
        raise LogFormatError(f"record headers are damaged: {error}") from error


@lru_cache(maxsize=_SHAPES_MAX)
def _shape(fields: tuple[tuple[str, int], ...]) -> bytes:
    if all(name in OWN_NAMES and size < 256 for name, size in fields):
        own = bytes(number for name, size in fields for number in (OWN_NAMES.index(name), size))
        return _U16.pack(len(own) | _SHORT) + own
    parts = []
    for name, size in fields:
        encoded = name.encode()
        parts.append(_U16.pack(len(encoded)) + encoded + _U32.pack(size))
    shape = b"".join(parts)
    if len(shape) >= _SHORT:
        raise RecordTooLarge(f"the names of {len(fields)} headers have {len(shape)} bytes", hint="give fewer of them")
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
    return tuple(names), _unpack(sizes)


@lru_cache(maxsize=_SHAPES_MAX)
def _own_fields(shape: bytes) -> tuple[tuple[str, ...], Callable[[bytes], tuple[bytes, ...]]]:
    if len(shape) % 2:
        raise LogFormatError(f"record headers are damaged: a shape of {len(shape)} bytes")
    return tuple(OWN_NAMES[number] for number in shape[::2]), _unpack(shape[1::2])


def _unpack(sizes: Iterable[int]) -> Callable[[bytes], tuple[bytes, ...]]:
    return struct.Struct("<" + "".join(f"{size}s" for size in sizes)).unpack
