"""A dispatcher passes an event by its envelope only where decoding and judging it would come to the same."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.property.records import bodies, envelopes
from tests.property.test_codec import stamp_of
from tracklog.consumers.dispatch.follow import HEARD, Followed, follow, passed
from tracklog.infra.log.port import Record
from tracklog.schemas.catalog import Kind
from tracklog.schemas.codec import HEADER_HASH, decode_event, encode_event
from tracklog.schemas.envelope import Envelope
from tracklog.schemas.errors import ForeignRecord
from tracklog.schemas.events import EventBody, OwnershipClaimed, TimerFired
from tracklog.schemas.head import Head
from tracklog.schemas.values import Driver, Ref

OWNER = bytes(16)
SMALL = 2**55
"""Numbers from it on are decoded by the schema."""


def plain(envelope: Envelope) -> Envelope:
    """As most are: of an owner, out of nobody's inbox, after an event of its own trajectory."""
    cause = Ref(trajectory_id=envelope.trajectory_id, seq=max(0, envelope.seq - 1))
    small = {name: getattr(envelope, name) % SMALL for name in ("seq", "turn", "lamport", "recorded_at")}
    cause = cause.model_copy(update={"seq": cause.seq % SMALL})
    epoch = max(1, envelope.epoch % SMALL)
    changes: dict[str, object] = {
        "causes": (cause,),
        "ext": {},
        "inbox_id": None,
        "inbox_position": None,
        "key_id": None,
    }
    return envelope.model_copy(update={**changes, **small, "epoch": epoch, "tenant": "default"})


def record_of(envelope: Envelope, body: EventBody) -> Record:
    encoded = encode_event(stamp_of(envelope), body)
    return Record("events", 0, 0, 0, envelope.trajectory_id.encode(), encoded.value, encoded.headers)


def known_before(envelope: Envelope, seq_off: int = 0) -> Followed:
    return Followed(Head(envelope.epoch, envelope.seq - 1 + seq_off, envelope.prev_hash, OWNER))


def follow_decoded(known: Followed, record: Record) -> Followed:
    try:
        return follow(known, decode_event(record.key, record.value, record.headers))
    except ForeignRecord:
        return known


@settings(max_examples=300)
@given(envelopes(Kind.EVENTS), bodies(Kind.EVENTS), st.booleans(), st.integers(-1, 1))
def test_what_is_passed_is_what_following_the_decoded_event_gives(
    envelope: Envelope, body: EventBody, ordinary: bool, seq_off: int
) -> None:
    # given any event, and a head that it fits or nearly fits
    envelope = plain(envelope) if ordinary else envelope.model_copy(update={"key_id": None})
    record, known = record_of(envelope, body), known_before(envelope, seq_off)
    # when it may be passed
    quick = passed(known, record)
    # then decoding it comes to the same; and ordinary ones that say nothing are passed
    assert quick is None or quick == follow_decoded(known, record)
    if ordinary and seq_off == 0 and type(body).__name__ not in HEARD:
        assert quick is not None


@settings(max_examples=300)
@given(envelopes(Kind.EVENTS), bodies(Kind.EVENTS), st.data())
def test_an_event_whose_bytes_were_changed_is_passed_only_where_it_would_be_accepted(
    envelope: Envelope, body: EventBody, data: st.DataObject
) -> None:
    envelope = plain(envelope)
    record, known = record_of(envelope, body), known_before(envelope)
    assert record.value is not None
    at = data.draw(st.integers(10, len(record.value) - 1))
    changed = record.value[:at] + bytes([record.value[at] ^ data.draw(st.integers(1, 255))]) + record.value[at + 1 :]
    # with the hash that it had, and with none
    for headers in (record.headers, tuple(one for one in record.headers if one[0] != HEADER_HASH)):
        altered = record._replace(value=changed, headers=headers)
        quick = passed(known, altered)
        assert quick is None or quick == follow_decoded(known, altered)


def test_claims_and_what_comes_before_one_are_decoded() -> None:
    envelope = Envelope(
        trajectory_id="t",
        tenant="default",
        seq=4,
        epoch=1,
        turn=1,
        event_id=bytes(16),
        lamport=4,
        recorded_at=1,
        prev_hash=bytes(32),
    )
    record, known = record_of(envelope, TimerFired(timer_id="t")), known_before(envelope)
    assert passed(known, record) is not None
    assert passed(Followed(known.head._replace(epoch=0)), record) is None
    claim = OwnershipClaimed(owner="o", nonce=bytes(16), driver=Driver.WORKER, reason="")
    assert passed(known, record_of(envelope, claim)) is None
