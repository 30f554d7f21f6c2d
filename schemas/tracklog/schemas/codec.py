"""Records to bytes and back, under either framing (DESIGN §4).

    single-object   C3 01, fingerprint (8 bytes), Avro payload      the default
    Confluent       00, schema id (4 bytes big-endian), payload     when a schema registry is configured

Readers accept both by the first bytes. The fingerprint also travels in the header `tl-schema`, so bytes
with a Confluent prefix decode without their registry.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from typing import Any, Final, Generic, NamedTuple, TypeVar

import fastavro
from pydantic import ValidationError

from tracklog.schemas import catalog, limits
from tracklog.schemas.avsc import ENVELOPE_FIELD
from tracklog.schemas.catalog import HEADER_SCHEMA, HEADER_TYPE, Kind, Schema
from tracklog.schemas.chain import event_hash, event_id
from tracklog.schemas.control import ControlBody
from tracklog.schemas.envelope import Envelope, InboxEnvelope, LedgerEnvelope
from tracklog.schemas.errors import ForeignRecord, RecordTooLarge
from tracklog.schemas.events import EventBody
from tracklog.schemas.glance import Place, read_envelope, read_place
from tracklog.schemas.inbox import InboxBody
from tracklog.schemas.ledger import LedgerBody
from tracklog.schemas.stamp import Stamp, avro_long, envelope_bytes
from tracklog.schemas.values import Value

HEADER_HASH: Final = "tl-hash"
SINGLE_OBJECT_MARK: Final = b"\xc3\x01"
CONFLUENT_MARK: Final = b"\x00"
FINGERPRINT_BYTES: Final = 8
EVENT_ID_BYTES: Final = 16

Headers = tuple[tuple[str, bytes], ...]
Framing = Callable[[Schema], bytes]
"""The bytes in front of the payload."""

E = TypeVar("E", bound=Value)
B = TypeVar("B", bound=Value)


class Encoded(NamedTuple):
    """A record ready to append: the log's value and headers, and the hash the next event carries."""

    value: bytes
    headers: Headers
    hash: bytes


class Recorded(NamedTuple, Generic[E, B]):
    """A record as read. `body` is None for a type or version that is not known here: it is kept as it is.

    `problem` says why the bytes cannot be believed (they do not have the hash they came with): tampered. `flaw`
    says why a body of a known type cannot be read here, though its bytes are what was written; such a record is
    judged like one of an unknown type, so that readers with other limits come to the same verdict.
    """

    name: str
    envelope: E
    body: B | None
    hash: bytes
    fingerprint: bytes
    problem: str = ""
    flaw: str = ""

    @property
    def known(self) -> bool:
        return self.body is not None


Event = Recorded[Envelope, EventBody]
InboxRecord = Recorded[InboxEnvelope, InboxBody]
LedgerRecord = Recorded[LedgerEnvelope, LedgerBody]
ControlRecord = Recorded[InboxEnvelope, ControlBody]


def single_object(schema: Schema) -> bytes:
    """The default framing: needs no registry to be read."""
    return SINGLE_OBJECT_MARK + schema.fingerprint


def confluent(ids: Mapping[str, int]) -> Framing:
    """Framing by registered ids, one for each type name; a missing one is a KeyError at the first append."""
    prefixes = {name: CONFLUENT_MARK + number.to_bytes(4, "big") for name, number in ids.items()}
    return lambda schema: prefixes[schema.name]


def _avro(parsed: Any, datum: Mapping[str, Any]) -> bytes:
    out = BytesIO()
    fastavro.schemaless_writer(out, parsed, datum)
    return out.getvalue()


def encode_event(stamp: Stamp, body: EventBody, framing: Framing = single_object) -> Encoded:
    """Encodes an event under its newest schema. Raises RecordTooLarge above EVENT_BYTES_MAX, naming the event."""
    schema = catalog.newest(type(body).__name__)
    body_bytes = _avro(schema.body, body.model_dump())
    identity = event_id(stamp.trajectory_id, stamp.epoch, stamp.seq, body_bytes)
    return _encoded(schema, stamp.trajectory_id, envelope_bytes(stamp, identity) + body_bytes, framing)


def written_event(stamp: Stamp, tenant: str, body: EventBody, encoded: Encoded) -> Event:
    """What decoding these bytes gives, for whoever has encoded them from this: a seventh of the time."""
    fingerprint, payload = split_frame(encoded.value, dict(encoded.headers))
    id_at = len(stamp.prefix) + sum(len(avro_long(one)) for one in (stamp.seq, stamp.epoch, stamp.turn))
    envelope = Envelope(
        trajectory_id=stamp.trajectory_id,
        tenant=tenant,
        seq=stamp.seq,
        epoch=stamp.epoch,
        turn=stamp.turn,
        event_id=payload[id_at : id_at + EVENT_ID_BYTES],
        causes=stamp.causes,
        lamport=stamp.lamport,
        recorded_at=stamp.recorded_at,
        inbox_id=stamp.inbox_id,
        inbox_position=stamp.inbox_position,
        prev_hash=stamp.prev_hash,
        ext=stamp.ext,
    )
    return Recorded(type(body).__name__, envelope, body, encoded.hash, fingerprint)


def encode_record(envelope: InboxEnvelope | LedgerEnvelope, body: Value, framing: Framing = single_object) -> Encoded:
    """Encodes a record that is no event. Raises RecordTooLarge."""
    schema = catalog.newest(type(body).__name__)
    head = _avro(catalog.parsed_envelope(schema.kind), envelope.model_dump())
    return _encoded(schema, envelope.trajectory_id, head + _avro(schema.body, body.model_dump()), framing)


def _encoded(schema: Schema, trajectory_id: str, payload: bytes, framing: Framing) -> Encoded:
    value = framing(schema) + payload
    if len(value) > limits.EVENT_BYTES_MAX:
        raise RecordTooLarge(
            f"{schema.name} for trajectory {trajectory_id!r} has {len(value)} bytes",
            hint=f"at most {limits.EVENT_BYTES_MAX} fit; put large bodies into the blob store first",
        )
    digest = event_hash(schema.fingerprint, payload)
    return Encoded(value, (*schema.headers, (HEADER_HASH, digest)), digest)


def decode_event(key: bytes | None, value: bytes | None, headers: Sequence[tuple[str, bytes | None]]) -> Event:
    """Decodes a record of the events topic. Raises ForeignRecord when even the envelope is not ours."""
    return _decode(Kind.EVENTS, key, value, headers)


class Glance(NamedTuple):
    """An event of a known type whose bytes have the hash they came with, as far as its envelope tells. `place`: where
    it says that it stands."""

    name: str
    place: Place
    hash: bytes


def glance(key: bytes | None, value: bytes | None, headers: Sequence[tuple[str, bytes | None]]) -> Glance | None:
    """A record of the events topic without its body, for a quarter of what decoding takes. None says nothing: decode
    it then."""
    if not key or value is None:
        return None
    stated = dict(headers)
    try:
        fingerprint, payload = split_frame(value, stated)
    except ForeignRecord:
        return None
    schema = catalog.find(fingerprint, stated.get(HEADER_TYPE))
    if schema is None or schema.kind is not Kind.EVENTS:
        return None
    digest, said = event_hash(fingerprint, payload), stated.get(HEADER_HASH)
    place = read_place(key, payload)
    if place is None or (said is not None and said != digest):
        return None
    return Glance(schema.name, place, digest)


def decode_inbox(key: bytes | None, value: bytes | None, headers: Sequence[tuple[str, bytes | None]]) -> InboxRecord:
    """Decodes a record of the inbox topic. Raises ForeignRecord."""
    return _decode(Kind.INBOX, key, value, headers)


def decode_ledger(key: bytes | None, value: bytes | None, headers: Sequence[tuple[str, bytes | None]]) -> LedgerRecord:
    """Decodes a record of the attempts topic. Raises ForeignRecord."""
    return _decode(Kind.LEDGER, key, value, headers)


def decode_control(
    key: bytes | None, value: bytes | None, headers: Sequence[tuple[str, bytes | None]]
) -> ControlRecord:
    """Decodes a record of the controls topic. Raises ForeignRecord."""
    return _decode(Kind.CONTROLS, key, value, headers)


def split_frame(value: bytes, headers: Mapping[str, bytes | None]) -> tuple[bytes, bytes]:
    """(fingerprint, payload) of a value under either framing. Raises ForeignRecord."""
    if value[:2] == SINGLE_OBJECT_MARK and len(value) > 2 + FINGERPRINT_BYTES:
        return value[2 : 2 + FINGERPRINT_BYTES], value[2 + FINGERPRINT_BYTES :]
    if value[:1] == CONFLUENT_MARK and len(value) > 5:
        stated = headers.get(HEADER_SCHEMA)
        if stated is None or len(stated) != FINGERPRINT_BYTES:
            raise ForeignRecord(f"a Confluent frame without the {HEADER_SCHEMA} header cannot be decoded")
        return stated, value[5:]
    raise ForeignRecord(f"{len(value)} bytes that start with {value[:4].hex() or 'nothing'} are not a Tracklog frame")


def _decode(
    kind: Kind, key: bytes | None, value: bytes | None, header_list: Sequence[tuple[str, bytes | None]]
) -> Recorded[Any, Any]:
    if value is None:
        raise ForeignRecord("a record without a value (a tombstone) has no place in this topic")
    headers = dict(header_list)
    fingerprint, payload = split_frame(value, headers)
    schema = catalog.find(fingerprint, headers.get(HEADER_TYPE))
    if schema is not None and schema.kind is not kind:
        raise ForeignRecord(f"a record of type {schema.name} belongs to another topic than this one ({kind})")
    digest = event_hash(fingerprint, payload)
    stated = headers.get(HEADER_HASH)
    problem = "" if stated is None or stated == digest else f"the bytes do not have the hash that {HEADER_HASH} states"
    name = schema.name if schema is not None else (headers.get(HEADER_TYPE) or b"unknown").decode(errors="replace")
    envelope, body, flaw = _read(kind, schema, key, payload)
    if key != envelope.trajectory_id.encode():
        raise ForeignRecord(
            f"the record key {key!r} is not the trajectory id {envelope.trajectory_id!r} in its envelope"
        )
    return Recorded(name, envelope, body, digest, fingerprint, problem, flaw)


def _read(kind: Kind, schema: Schema | None, key: bytes | None, payload: bytes) -> tuple[Any, Value | None, str]:
    """(envelope, body or None, what is wrong with the body)."""
    if schema is None:
        return _read_envelope(kind, payload), None, ""
    if key is not None and kind is Kind.EVENTS and catalog.reader_of(schema) is None:
        by_hand = read_envelope(key, payload)
        if by_hand is not None:
            return by_hand[0], *_read_body(schema, payload, by_hand[1])
    source = BytesIO(payload)
    try:
        fields: Any = fastavro.schemaless_reader(source, schema.parsed, catalog.reader_of(schema))
        envelope = catalog.ENVELOPES[kind].model_validate(fields.pop(ENVELOPE_FIELD))
        trailing = len(payload) - source.tell()
        if trailing:
            return envelope, None, f"{trailing} bytes too many behind the body of {schema.name}"
        return envelope, schema.model.model_validate(fields), ""
    except (ValidationError, *_AVRO_ERRORS) as error:
        return (
            _read_envelope(kind, payload),
            None,
            f"the body of {schema.name} does not decode: {_first_line(error)}",
        )


def _read_body(schema: Schema, payload: bytes, at: int) -> tuple[Value | None, str]:
    """The body behind an envelope that ends there, or what is wrong with it."""
    source = BytesIO(payload)
    source.seek(at)
    try:
        fields = fastavro.schemaless_reader(source, schema.body, None)
        trailing = len(payload) - source.tell()
        if trailing:
            return None, f"{trailing} bytes too many behind the body of {schema.name}"
        return schema.model.model_validate(fields), ""
    except (ValidationError, *_AVRO_ERRORS) as error:
        return None, f"the body of {schema.name} does not decode: {_first_line(error)}"


def _read_envelope(kind: Kind, payload: bytes) -> Value:
    try:
        fields: Any = fastavro.schemaless_reader(BytesIO(payload), catalog.parsed_envelope(kind), None)
        return catalog.ENVELOPES[kind].model_validate(fields)
    except (ValidationError, *_AVRO_ERRORS) as error:
        raise ForeignRecord(f"the envelope does not decode: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"[:200]


_AVRO_ERRORS: Final = (EOFError, ValueError, IndexError, KeyError, OverflowError, TypeError, MemoryError)
"""What fastavro raises on bytes that are not what the schema says (seen with random bytes)."""
