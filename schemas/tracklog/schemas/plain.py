"""An event as plain values, without the checks of its model: for what moves many and judges none (the exporter).

Everything that `decode_event` takes for an event is one here, with the same name, bytes and hash. The body is what the
bytes say under the version that wrote them, so it stays the same when a newer version comes; whether it is one that a
reader would take (`flaw`) is found when it is read back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from io import BytesIO
from typing import Any, Final, NamedTuple

import fastavro

from tracklog.schemas import catalog
from tracklog.schemas.avsc import ENVELOPE_FIELD
from tracklog.schemas.catalog import HEADER_TYPE, Kind, Schema
from tracklog.schemas.chain import event_hash
from tracklog.schemas.codec import HEADER_HASH, decode_event, split_frame
from tracklog.schemas.errors import ForeignRecord
from tracklog.schemas.glance import read_fields

__all__ = ["PlainEvent", "plain_event"]

_AVRO_ERRORS: Final = (EOFError, ValueError, IndexError, KeyError, OverflowError, TypeError, MemoryError)
_COUNTS: Final = ("seq", "epoch", "turn", "lamport", "recorded_at")


class PlainEvent(NamedTuple):
    """`envelope` may be without event id, causes and previous hash: they are in the payload.

    `version` and `body` are None for a type or version that is not known, `body` also when it does not decode.

    `stated_hash` is what a record's header states where that is not the hash of its bytes: such a record is tampered.
    """

    name: str
    version: int | None
    envelope: Mapping[str, Any]
    body: Mapping[str, Any] | None
    fingerprint: bytes
    payload: bytes
    hash: bytes
    stated_hash: bytes | None


def plain_event(key: bytes | None, value: bytes | None, headers: Sequence[tuple[str, bytes | None]]) -> PlainEvent:
    """Raises ForeignRecord where `decode_event` does."""
    if value is None:
        raise ForeignRecord("a record without a value (a tombstone) has no place in this topic")
    named = dict(headers)
    fingerprint, payload = split_frame(value, named)
    schema = catalog.find(fingerprint, named.get(HEADER_TYPE))
    found = _by_hand(schema, key, payload)
    if found is None:
        found = _by_schema(schema, key, payload)
    envelope, body = found if found is not None else (_slowly(key, value, headers), None)
    digest = event_hash(fingerprint, payload)
    stated = named.get(HEADER_HASH)
    return PlainEvent(
        schema.name if schema is not None else (named.get(HEADER_TYPE) or b"unknown").decode(errors="replace"),
        None if schema is None else schema.version,
        envelope,
        body or None,
        fingerprint,
        payload,
        digest,
        None if stated is None or stated == digest else stated,
    )


_Found = tuple[Mapping[str, Any], dict[str, Any] | None]
"""Envelope and body."""


def _by_hand(schema: Schema | None, key: bytes | None, payload: bytes) -> _Found | None:
    """None for an envelope that is not of the usual form, or what is none of ours."""
    if schema is None or not key or schema.kind is not Kind.EVENTS:
        return None
    found = read_fields(key, payload)
    if found is None:
        return None
    envelope, at = found
    source = BytesIO(payload)
    source.seek(at)
    try:
        body: Any = fastavro.schemaless_reader(source, schema.body, None)
    except _AVRO_ERRORS:
        return envelope, None
    return envelope, body if source.tell() == len(payload) else None


def _by_schema(schema: Schema | None, key: bytes | None, payload: bytes) -> _Found | None:
    """None for what is not the common case."""
    if schema is None or schema.kind is not Kind.EVENTS:
        return None
    source = BytesIO(payload)
    try:
        fields: Any = fastavro.schemaless_reader(source, schema.parsed, None)
    except _AVRO_ERRORS:
        return None
    envelope = fields.pop(ENVELOPE_FIELD)
    if source.tell() != len(payload) or envelope["trajectory_id"] != _id_of(key) or not _counts(envelope):
        return None
    return envelope, fields


def _counts(envelope: Mapping[str, Any]) -> bool:
    return bool(envelope["tenant"]) and min(envelope[name] for name in _COUNTS) >= 0


def _slowly(key: bytes | None, value: bytes, headers: Sequence[tuple[str, bytes | None]]) -> dict[str, Any]:
    """With all checks. A body that did not decode the quick way is left out."""
    return decode_event(key, value, headers).envelope.model_dump()


@lru_cache(maxsize=100_000)
def _id_of(key: bytes | None) -> str | None:
    """Ids are checked where a trajectory begins; a key that is no text is none."""
    try:
        return None if not key else key.decode()
    except UnicodeDecodeError:
        return None
