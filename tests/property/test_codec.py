"""What is written is what is read, under either framing, and damaged bytes are told as such."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import fastavro
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.property.records import bodies, envelopes
from tracklog.schemas import catalog
from tracklog.schemas.catalog import KIND_OF, Kind
from tracklog.schemas.chain import event_hash
from tracklog.schemas.codec import (
    HEADER_HASH,
    Encoded,
    confluent,
    decode_control,
    decode_event,
    decode_inbox,
    decode_ledger,
    encode_event,
    encode_record,
    glance,
    single_object,
    split_frame,
    written_event,
)
from tracklog.schemas.envelope import Envelope
from tracklog.schemas.errors import ForeignRecord
from tracklog.schemas.events import EventBody
from tracklog.schemas.glance import read_envelope
from tracklog.schemas.skim import Skim
from tracklog.schemas.stamp import Stamp, avro_long, envelope_bytes, trajectory_prefix
from tracklog.schemas.values import Ref

counts = st.integers(0, 2**63 - 1)
REGISTERED = confluent({name: number for number, name in enumerate(KIND_OF)})
DECODE = {
    Kind.EVENTS: decode_event,
    Kind.INBOX: decode_inbox,
    Kind.LEDGER: decode_ledger,
    Kind.CONTROLS: decode_control,
}


def stamp_of(envelope: Envelope) -> Stamp:
    """What a writer would stamp to get this envelope; `key_id` it never writes."""
    return Stamp(
        trajectory_id=envelope.trajectory_id,
        prefix=trajectory_prefix(envelope.trajectory_id, envelope.tenant),
        seq=envelope.seq,
        epoch=envelope.epoch,
        turn=envelope.turn,
        lamport=envelope.lamport,
        recorded_at=envelope.recorded_at,
        prev_hash=envelope.prev_hash,
        causes=envelope.causes,
        inbox_id=envelope.inbox_id,
        inbox_position=envelope.inbox_position,
        ext=envelope.ext,
    )


def payload(encoded: Encoded) -> bytes:
    return split_frame(encoded.value, dict(encoded.headers))[1]


@settings(max_examples=200)
@given(envelopes(Kind.EVENTS))
def test_a_hand_written_envelope_is_what_avro_makes_of_the_schema(envelope: Envelope) -> None:
    envelope = envelope.model_copy(update={"key_id": None})

    written = envelope_bytes(stamp_of(envelope), envelope.event_id)

    expected = BytesIO()
    fastavro.schemaless_writer(expected, catalog.parsed_envelope(Kind.EVENTS), envelope.model_dump())
    assert written == expected.getvalue()


@settings(max_examples=300)
@given(envelopes(Kind.EVENTS), bodies(Kind.EVENTS), st.booleans(), st.data())
def test_what_skimming_is_sure_of_is_what_decoding_gives(
    envelope: Envelope, body: EventBody, plain: bool, data: st.DataObject
) -> None:
    """Given any envelope, then it fits its own seq, epoch and hash, or is to be decoded; and never fits others."""
    if plain:  # as most are: it takes nothing from the inbox, and follows from an event of its own trajectory
        causes = data.draw(st.sampled_from([(), (Ref(trajectory_id=envelope.trajectory_id, seq=envelope.seq),)]))
        envelope = envelope.model_copy(update={"inbox_id": None, "inbox_position": None, "causes": causes})
    written = payload(encode_event(stamp_of(envelope), body))
    skim, said = Skim(envelope.trajectory_id, envelope.tenant), (envelope.seq, envelope.epoch, envelope.prev_hash)

    def fits(seq: int, epoch: int, prev_hash: bytes) -> bool:
        return skim.fits(written, seq=seq, epoch=epoch, prev_hash=prev_hash)

    if plain:
        assert fits(*said)
    for other in data.draw(st.lists(st.tuples(counts, counts, st.binary(min_size=32, max_size=32)), max_size=3)):
        assert other == said or not fits(*other)
    assert not Skim(envelope.trajectory_id + "x", envelope.tenant).fits(
        written, seq=envelope.seq, epoch=envelope.epoch, prev_hash=envelope.prev_hash
    )


@settings(max_examples=300)
@given(envelopes(Kind.EVENTS), bodies(Kind.EVENTS))
def test_what_a_writer_knows_of_its_event_is_what_decoding_it_gives(envelope: Envelope, body: EventBody) -> None:
    envelope = envelope.model_copy(update={"key_id": None})
    stamp = stamp_of(envelope)
    encoded = encode_event(stamp, body)

    written = written_event(stamp, envelope.tenant, body, encoded)

    assert written == decode_event(envelope.trajectory_id.encode(), encoded.value, encoded.headers)


def by_the_schema(value: bytes) -> Envelope | None:
    """None for what does not decode, or breaks a check."""
    try:
        fields: Any = fastavro.schemaless_reader(BytesIO(value), catalog.parsed_envelope(Kind.EVENTS), None)
        return Envelope.model_validate(fields)
    except (EOFError, ValueError, IndexError, KeyError, OverflowError, TypeError, MemoryError):
        return None


@settings(max_examples=400)
@given(envelopes(Kind.EVENTS), bodies(Kind.EVENTS), st.booleans(), st.data())
def test_an_envelope_read_by_hand_is_what_the_schema_makes_of_it(
    envelope: Envelope, body: EventBody, plain: bool, data: st.DataObject
) -> None:
    """Given any envelope, whole or with some bytes changed: what is read by hand is what decoding gives, or nothing."""
    if plain:
        causes = data.draw(st.sampled_from([(), (Ref(trajectory_id=envelope.trajectory_id, seq=3),)]))
        small = {name: getattr(envelope, name) % 2**55 for name in ("seq", "epoch", "turn", "lamport", "recorded_at")}
        rest = {"inbox_id": None, "inbox_position": None, "key_id": None, "causes": causes, "ext": {}, **small}
        envelope = envelope.model_copy(update=rest)
    encoded = encode_event(stamp_of(envelope), body)
    key, written = envelope.trajectory_id.encode(), bytearray(payload(encoded))
    whole = read_envelope(key, bytes(written))
    assert not plain or whole is not None

    for at in data.draw(st.lists(st.integers(0, min(len(written), 120) - 1), max_size=2)):
        written[at] = data.draw(st.integers(0, 255))

    found = read_envelope(key, bytes(written))
    if found is not None:
        assert found[0] == by_the_schema(bytes(written))
        assert found[0].model_dump() == Envelope.model_validate(found[0].model_dump()).model_dump()
        framed = encoded.value[:10] + bytes(written)
        seen = glance(key, framed, encoded.headers[:2])
        event = decode_event(key, framed, encoded.headers[:2])
        assert seen is not None
        assert seen == (event.name, (key.decode(), found[0].seq, found[0].epoch, found[0].prev_hash), event.hash)
    assert glance(key, encoded.value[:10] + bytes(written), ((HEADER_HASH, bytes(32)),)) is None
    assert glance(key + b"x", encoded.value, encoded.headers) is None


@given(st.integers(0, 2**63 - 1))
@example(63)
@example(64)
@example(2**63 - 1)
def test_a_hand_written_long_is_what_avro_makes_of_it(number: int) -> None:
    expected = BytesIO()
    fastavro.schemaless_writer(expected, "long", number)
    assert avro_long(number) == expected.getvalue()


@settings(max_examples=200)
@given(envelopes(Kind.EVENTS), bodies(Kind.EVENTS))
def test_an_event_is_read_as_it_was_written(envelope: Envelope, body: EventBody) -> None:
    encoded = encode_event(stamp_of(envelope), body)

    event = decode_event(envelope.trajectory_id.encode(), encoded.value, encoded.headers)

    assert (event.name, event.body, event.problem) == (type(body).__name__, body, "")
    assert event.hash == encoded.hash
    assert event.envelope.model_copy(update={"event_id": envelope.event_id, "key_id": envelope.key_id}) == envelope


@settings(max_examples=60)
@given(envelopes(Kind.EVENTS), bodies(Kind.EVENTS))
def test_framing_changes_neither_hash_nor_content(envelope: Envelope, body: EventBody) -> None:
    plain = encode_event(stamp_of(envelope), body, single_object)
    registered = encode_event(stamp_of(envelope), body, REGISTERED)

    key = envelope.trajectory_id.encode()
    assert plain.value != registered.value
    assert payload(plain) == payload(registered)
    assert decode_event(key, plain.value, plain.headers) == decode_event(key, registered.value, registered.headers)


@settings(max_examples=60)
@given(
    st.data(), st.sampled_from([Kind.INBOX, Kind.LEDGER, Kind.CONTROLS]), st.sampled_from([single_object, REGISTERED])
)
def test_records_of_other_topics_are_read_as_they_were_written(data: st.DataObject, kind: Kind, framing: Any) -> None:
    envelope, body = data.draw(envelopes(kind)), data.draw(bodies(kind))

    encoded = encode_record(envelope, body, framing)
    record: Any = DECODE[kind](envelope.trajectory_id.encode(), encoded.value, encoded.headers)

    assert (record.name, record.envelope, record.body, record.problem) == (type(body).__name__, envelope, body, "")
    assert record.hash == encoded.hash


@settings(max_examples=60)
@given(envelopes(Kind.EVENTS), bodies(Kind.EVENTS), st.integers(0, 2**63 - 1))
def test_an_event_keeps_its_id_whenever_it_is_recorded(envelope: Envelope, body: EventBody, later: int) -> None:
    stamp = stamp_of(envelope)
    again = stamp._replace(recorded_at=later, lamport=later, prev_hash=bytes(32))
    key = envelope.trajectory_id.encode()

    first, second = (decode_event(key, *encode_event(each, body)[:2]) for each in (stamp, again))

    assert first.envelope.event_id == second.envelope.event_id


@settings(max_examples=60)
@given(envelopes(Kind.EVENTS), bodies(Kind.EVENTS), st.binary(max_size=40))
def test_an_envelope_is_read_from_an_event_of_a_type_not_known_here(
    envelope: Envelope, body: EventBody, rest: bytes
) -> None:
    """A later version only adds behind the envelope, so it decodes as a prefix."""
    known = encode_event(stamp_of(envelope), body)
    unknown, later = b"\xff" * 8, payload(known) + rest

    event = decode_event(envelope.trajectory_id.encode(), b"\xc3\x01" + unknown + later, (("tl-type", b"Dreamed"),))

    assert (event.name, event.body, event.problem, event.known) == ("Dreamed", None, "", False)
    assert event.hash == event_hash(unknown, later)
    assert event.envelope.prev_hash == envelope.prev_hash


@settings(max_examples=150)
@given(st.data(), st.sampled_from(list(Kind)), st.booleans())
def test_damaged_bytes_are_foreign_or_tampered_and_nothing_else(
    data: st.DataObject, kind: Kind, with_hash: bool
) -> None:
    envelope, body = data.draw(envelopes(kind)), data.draw(bodies(kind))
    encoded = _encode(kind, envelope, body)
    headers = encoded.headers if with_hash else ()
    damaged = data.draw(_damaged(encoded.value))

    try:
        record: Any = DECODE[kind](envelope.trajectory_id.encode(), damaged, headers)
    except ForeignRecord:
        return
    if with_hash:
        assert record.problem or damaged == encoded.value, "its hash header says that it was altered"


@given(st.binary(max_size=200), st.sampled_from(list(Kind)))
def test_bytes_of_others_are_foreign(noise: bytes, kind: Kind) -> None:
    with pytest.raises(ForeignRecord):
        DECODE[kind](b"t", noise, ())


def _encode(kind: Kind, envelope: Any, body: Any) -> Encoded:
    if kind is Kind.EVENTS:
        return encode_event(stamp_of(envelope), body)
    return encode_record(envelope, body)


HUGE_LONGS = st.sampled_from([b"\xff" * 9 + b"\x01", b"\xfe" + b"\xff" * 8 + b"\x01", b"\x80" * 5 + b"\x10"])
"""-2^63, 2^63 - 1 and 2^34, as Avro writes them: a length or a count that there is no memory for."""


@st.composite
def _damaged(draw: st.DrawFn, value: bytes) -> bytes:
    """Cut short, a bit turned, a huge number put in, or overwritten from somewhere on."""
    at = draw(st.integers(0, len(value) - 1))
    way = draw(st.sampled_from(["cut", "flip", "insert", "overwrite"]))
    if way == "cut":
        return value[:at]
    if way == "flip":
        return value[:at] + bytes([value[at] ^ 1 << draw(st.integers(0, 7))]) + value[at + 1 :]
    if way == "insert":
        return value[:at] + draw(HUGE_LONGS) + value[at:]
    return value[:at] + draw(st.binary(min_size=1, max_size=30))
