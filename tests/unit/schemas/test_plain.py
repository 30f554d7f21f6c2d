"""An event as plain values is the event that decoding gives, and what is none there is none here."""

from __future__ import annotations

import pytest

from tests.support.chains import Chain, run_of
from tests.support.tampering import flipped
from tracklog.schemas.codec import HEADER_HASH, decode_event
from tracklog.schemas.errors import ForeignRecord
from tracklog.schemas.plain import plain_event


def test_every_event_of_a_run_says_the_same_in_both_ways() -> None:
    for made in run_of("run-1").records:
        event, plain = decode_event(made.key, made.value, made.headers), plain_event(made.key, made.value, made.headers)

        assert event.body is not None
        assert plain.body == event.body.model_dump(mode="python") | plain.body  # type: ignore[operator]
        said = event.envelope.model_dump()
        assert plain.envelope == {name: said[name] for name in plain.envelope}
        assert {"trajectory_id", "tenant", "turn", "inbox_id", "ext"} < plain.envelope.keys()
        assert (plain.name, plain.hash, plain.stated_hash) == (event.name, event.hash, None)
        assert plain.fingerprint + plain.payload == made.value[2:]


def test_a_hash_that_the_bytes_do_not_have_is_kept() -> None:
    made = flipped(run_of("run-1").records, 1)[1]

    plain = plain_event(made.key, made.value, made.headers)

    assert plain.stated_hash == dict(made.headers)[HEADER_HASH]
    assert plain.stated_hash != plain.hash


@pytest.mark.parametrize("value", [None, b"", b"nothing of ours", b"\xc3\x01" + bytes(8) + b"x"])
def test_what_is_no_event_is_foreign(value: bytes | None) -> None:
    with pytest.raises(ForeignRecord):
        plain_event(b"run-1", value, ())


def test_another_key_than_the_envelope_names_is_foreign() -> None:
    made = Chain("run-1").claim()

    with pytest.raises(ForeignRecord):
        plain_event(b"run-2", made.value, made.headers)


def test_a_type_that_is_not_known_keeps_its_name_and_bytes() -> None:
    made = Chain("run-1").claim()
    headers = (("tl-type", b"Novelty"), ("tl-schema", bytes(8)))
    value = made.value[:2] + bytes(8) + made.value[10:]

    plain = plain_event(made.key, value, headers)

    assert (plain.name, plain.version, plain.body) == ("Novelty", None, None)
    assert plain.envelope["trajectory_id"] == "run-1"


def test_a_body_that_does_not_decode_leaves_the_envelope() -> None:
    made = run_of("run-1").records[1]

    plain = plain_event(made.key, made.value + b"more", made.headers)

    assert plain.body is None
    assert plain.envelope["seq"] == 1
