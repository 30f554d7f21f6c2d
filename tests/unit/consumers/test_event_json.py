from __future__ import annotations

import json

import pytest

from tests.support.chains import run_of
from tests.support.tampering import decoded
from tracklog.consumers.event_json import SAMPLE, event_map, foreign_map, parse_event_map
from tracklog.infra.log.port import Record
from tracklog.schemas import events as ev
from tracklog.schemas.codec import Event, decode_event, encode_event
from tracklog.schemas.errors import InvalidEvent
from tracklog.schemas.stamp import Stamp, trajectory_prefix
from tracklog.schemas.values import BlobRef, Body, Budgets, Driver, InboxId, Ref

RECORD = Record("tracklog.events", 0, 0, 1_700_000_000_000, b"run", b"\x00\xff", (("tl-type", b"X"),))


def everything() -> Event:
    """An event with a blob reference, budgets, causes, an inbox id and an ext: every shape there is."""
    stamp = Stamp(
        "run",
        trajectory_prefix("run", "default"),
        0,
        0,
        0,
        lamport=7,
        recorded_at=9,
        prev_hash=bytes(32),
        causes=(Ref(trajectory_id="other", seq=3),),
        inbox_id=InboxId(source="s", seq=0),
        inbox_position=0,
        ext={"k": "v"},
    )
    body = ev.TaskStarted(
        driver=Driver.LIBRARY,
        task=Body.of("größer"),
        agent="a",
        prompt_template=BlobRef(hash=b"\x01" * 32, size_bytes=5),
        budgets=Budgets(turns=3),
        labels={"order": "W1"},
    )
    encoded = encode_event(stamp, body)
    return decode_event(b"run", encoded.value, encoded.headers)


def test_an_event_as_json_reads_back_as_the_same_event() -> None:
    for event in [everything(), *map(decoded, run_of("run", turns=2).records)]:
        fields = json.loads(json.dumps(event_map(event, RECORD)))

        assert parse_event_map(fields) == (event.envelope, event.body)


def test_bytes_are_hex_and_places_are_numbers_also_at_zero() -> None:
    fields = event_map(everything(), RECORD)

    assert fields["prev_hash"] == "00" * 32
    assert fields["body"]["prompt_template"]["hash"] == "01" * 32
    assert (fields["partition"], fields["offset"], fields["inbox_position"]) == (0, 0, 0)
    assert fields["inbox_id"] == {"source": "s", "seq": 0}


def test_a_filter_may_name_every_field_there_is() -> None:
    assert event_map(everything(), RECORD).keys() == SAMPLE.keys()


def test_bytes_that_are_no_event_are_shown_as_they_are() -> None:
    fields = foreign_map(RECORD, "why")

    assert (fields["key"], fields["value"], fields["problem"]) == ("72756e", "00ff", "why")


@pytest.mark.parametrize("change", [{"type": "Nosuch"}, {"body": None}, {"seq": -1}, {"prev_hash": "zz"}])
def test_what_is_no_event_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(InvalidEvent):
        parse_event_map({**event_map(everything()), **change})
