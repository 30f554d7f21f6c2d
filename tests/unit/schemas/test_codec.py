"""What is refused, what is kept as unknown, and what is told as tampered."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.golden import encoded, sample
from tracklog.schemas import catalog, limits
from tracklog.schemas.catalog import BODIES, Kind
from tracklog.schemas.codec import decode_event, decode_inbox, encode_event, encode_record
from tracklog.schemas.envelope import InboxEnvelope
from tracklog.schemas.errors import ForeignRecord, InvalidEvent, RecordTooLarge
from tracklog.schemas.events import EVENT_TYPES, MessageSent, TimerFired
from tracklog.schemas.inbox import Cancel, Message
from tracklog.schemas.stamp import Stamp, avro_long, trajectory_prefix
from tracklog.schemas.values import ZERO_HASH, Body, InboxId, Role

STAMP = Stamp("t", trajectory_prefix("t", "default"), 1, 1, 1, 1, 1, ZERO_HASH)
FIRED = encode_event(STAMP, TimerFired(timer_id="soon"))


def with_text(size: int) -> MessageSent:
    return MessageSent(peer="user", message=Body.of("x" * size))


def size_of(body: MessageSent) -> int:
    return len(encode_event(STAMP, body).value)


FULL = limits.EVENT_BYTES_MAX - size_of(with_text(limits.EVENT_BYTES_MAX // 2)) + limits.EVENT_BYTES_MAX // 2
"""Characters that make the event exactly as large as is allowed."""


@pytest.mark.parametrize("short_by", [0, 1])
def test_an_event_up_to_the_limit_is_encoded(short_by: int) -> None:
    assert size_of(with_text(FULL - short_by)) == limits.EVENT_BYTES_MAX - short_by


def test_an_event_one_byte_above_the_limit_is_a_clear_error() -> None:
    with pytest.raises(RecordTooLarge, match=r"MessageSent for trajectory 't' has 921601 bytes .*blob store"):
        encode_event(STAMP, with_text(FULL + 1))


def test_an_inbox_record_above_the_limit_is_a_clear_error() -> None:
    envelope = InboxEnvelope(trajectory_id="t", tenant="d", source="s", source_seq=0, lamport=0, recorded_at=0)

    with pytest.raises(RecordTooLarge, match="Message for trajectory 't'"):
        encode_record(envelope, Message(peer="p", role=Role.USER, message=Body.of("x" * limits.EVENT_BYTES_MAX)))


@pytest.mark.parametrize("number", [-1, 2**63])
def test_a_number_that_is_no_count_is_not_stamped(number: int) -> None:
    with pytest.raises(InvalidEvent, match="not a count"):
        avro_long(number)


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        (b"t", None, "tombstone"),
        (b"t", b"", "start with nothing"),
        (b"t", b"\xc3", "are not a Tracklog frame"),
        (b"t", b"\xc3\x01", "are not a Tracklog frame"),
        (b"t", b"\xc3\x01" + bytes(8), "are not a Tracklog frame"),
        (b"t", b'{"json": true}', "are not a Tracklog frame"),
        (b"t", b"\x00\x00\x00\x00\x01abc", "without the tl-schema header"),
        (b"t", FIRED.value[:20], "envelope does not decode"),
        (b"t", b"\xc3\x01" + b"\xff" * 8 + b"abc", "envelope does not decode"),
        (None, FIRED.value, "is not the trajectory id"),
        (b"u", FIRED.value, "is not the trajectory id"),
    ],
)
def test_what_is_not_ours_is_foreign(key: bytes | None, value: bytes | None, why: str) -> None:
    with pytest.raises(ForeignRecord, match=why):
        decode_event(key, value, ())


def test_a_record_of_another_topic_is_foreign() -> None:
    with pytest.raises(ForeignRecord, match="TimerFired belongs to another topic"):
        decode_inbox(b"t", FIRED.value, FIRED.headers)


def test_an_event_is_read_without_any_header() -> None:
    event = decode_event(b"t", FIRED.value, ())

    assert (event.body, event.hash, event.problem) == (TimerFired(timer_id="soon"), FIRED.hash, "")


@pytest.mark.parametrize("stated", [b"TimerFired", b"TimerSet", b"Dreamed", b"\xff", None])
def test_a_schema_is_found_by_its_fingerprint_whatever_type_a_record_states(stated: bytes | None) -> None:
    schema = catalog.newest("TimerFired")

    assert catalog.find(schema.fingerprint, stated) is schema
    assert catalog.find(bytes(8), stated) is None


def test_a_record_that_states_its_type_has_no_other_schema_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "by_fingerprint", None)
    catalog.find.cache_clear()

    assert decode_event(b"t", FIRED.value, FIRED.headers).name == "TimerFired"


def test_a_hash_header_that_says_otherwise_is_a_problem() -> None:
    event = decode_event(b"t", FIRED.value, [("tl-hash", bytes(32))])

    assert "do not have the hash" in event.problem


@pytest.mark.parametrize(
    ("value", "flaw"),
    [(FIRED.value + b"!", "1 bytes too many"), (FIRED.value[:-1], "the body of TimerFired does not decode")],
)
def test_a_body_that_does_not_decode_is_a_flaw_and_neither_foreign_nor_tampered(value: bytes, flaw: str) -> None:
    event = decode_event(b"t", value, ())

    assert event.envelope.seq == 1
    assert flaw in event.flaw
    assert (event.problem, event.known) == ("", False)


def test_an_inbox_record_is_identified_by_its_source_and_number() -> None:
    envelope = InboxEnvelope(trajectory_id="t", tenant="d", source="s", source_seq=0, lamport=0, recorded_at=0)
    record = encode_record(envelope, Cancel(by="someone"))

    assert decode_inbox(b"t", record.value, record.headers).envelope.inbox_id == InboxId(source="s", seq=0)


def aged(text: str) -> str:
    """A schema as it may have been before: with one more field, that the next version dropped."""
    raw = json.loads(text)
    field = {"name": "dropped_since", "type": "string", "default": ""}
    return json.dumps({**raw, "fields": [*raw["fields"], field]})


@pytest.fixture
def aged_catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every type has two versions while the test runs: an aged one, and today's as the second."""
    for kind in Kind:
        (tmp_path / kind.value).mkdir()
        for name in BODIES[kind]:
            text = catalog.newest(name).text
            (tmp_path / kind.value / f"{name}.1.avsc").write_text(aged(text))
            (tmp_path / kind.value / f"{name}.2.avsc").write_text(text)
    caches = (catalog.versions, catalog.newest, catalog.by_fingerprint, catalog.find, catalog._files)
    monkeypatch.setattr(catalog, "_folder", lambda kind: tmp_path / kind.value)
    for cached in caches:
        cached.cache_clear()
    yield
    for cached in caches:
        cached.cache_clear()


@pytest.mark.usefixtures("aged_catalog")
def test_an_older_version_is_read_as_the_newest() -> None:
    for name in EVENT_TYPES:
        older, newest = catalog.versions(name)
        envelope, record = encoded(newest, full=True)
        assert record.value[2:10] == newest.fingerprint
        value = b"\xc3\x01" + older.fingerprint + record.value[10:] + b"\x06abc"

        event = decode_event(envelope.trajectory_id.encode(), value, ())

        assert (event.name, event.problem, event.body) == (name, "", sample(newest.model, full=True))
