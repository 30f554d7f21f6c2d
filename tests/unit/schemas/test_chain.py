"""The hash and the id of an event are what DESIGN §4 says, computed here by hand."""

from __future__ import annotations

import hashlib
import json

import pytest

from scripts.golden import FOLDER, golden
from tracklog.schemas import catalog
from tracklog.schemas.catalog import KIND_OF
from tracklog.schemas.chain import event_hash, event_id
from tracklog.schemas.codec import decode_event, encode_event
from tracklog.schemas.events import TimerFired
from tracklog.schemas.stamp import Stamp, trajectory_prefix
from tracklog.schemas.values import ZERO_HASH

STAMP = Stamp("run-é", trajectory_prefix("run-é", "default"), 258, 1, 1, 1, 1, ZERO_HASH)
FIRED = encode_event(STAMP, TimerFired(timer_id="soon"))
BODY = b"\x08soon"


def test_the_hash_is_over_all_that_follows_the_single_object_mark() -> None:
    assert FIRED.value[:2] == b"\xc3\x01"
    assert FIRED.hash == hashlib.sha256(FIRED.value[2:]).digest()
    assert event_hash(FIRED.value[2:10], FIRED.value[10:]) == FIRED.hash
    assert dict(FIRED.headers) == {"tl-type": b"TimerFired", "tl-schema": FIRED.value[2:10], "tl-hash": FIRED.hash}


def test_the_id_is_over_trajectory_epoch_seq_and_body() -> None:
    epoch, seq = b"\0\0\0\0\0\0\0\x01", b"\0\0\0\0\0\0\x01\x02"
    expected = hashlib.sha256("run-é".encode() + b"\0" + epoch + seq + BODY).digest()[:16]

    assert event_id("run-é", 1, 258, BODY) == expected
    assert decode_event("run-é".encode(), FIRED.value, FIRED.headers).envelope.event_id == expected


@pytest.mark.parametrize("name", KIND_OF)
def test_today_the_same_bytes_are_written_as_when_the_version_was_released(name: str) -> None:
    schema = catalog.newest(name)
    kept = json.loads((FOLDER / f"{name}.{schema.version}.json").read_text(encoding="utf-8"))

    assert golden(schema) == kept
