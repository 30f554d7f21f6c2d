"""Reading one's own events back: the same bytes are taken as they were written, any others are decoded."""

from __future__ import annotations

from tracklog.infra.log.port import Record
from tracklog.producers.track import OWN_EVENTS_MAX, Own, Track
from tracklog.schemas.codec import Encoded, decode_event, encode_event
from tracklog.schemas.events import EventBody, OwnershipClaimed, TimerFired
from tracklog.schemas.fold import fold
from tracklog.schemas.stamp import Stamp, trajectory_prefix
from tracklog.schemas.state import State
from tracklog.schemas.values import ZERO_HASH, Driver

ID, TENANT = "t", "default"


def claim() -> Own:
    return own(0, 0, ZERO_HASH, OwnershipClaimed(owner="o", nonce=bytes(16), driver=Driver.LIBRARY, reason=""))


def own(seq: int, epoch: int, prev_hash: bytes, body: EventBody) -> Own:
    stamp = Stamp(ID, trajectory_prefix(ID, TENANT), seq, epoch, 0, seq + 1, 1, prev_hash)
    return Own(stamp, TENANT, body, encode_event(stamp, body))


def record_of(encoded: Encoded, offset: int) -> Record:
    return Record("events", 0, offset, 1, ID.encode(), encoded.value, encoded.headers)


def recording() -> Track:
    track = Track(State(ID), 64)
    track.record()
    return track


def test_what_was_written_here_is_taken_as_it_was_and_folds_to_the_same() -> None:
    # given events that were appended from here, and read back, the second twice
    first = claim()
    second = own(1, 1, first.encoded.hash, TimerFired(timer_id="a"))
    track, elsewhere = recording(), State(ID)
    for one in (first, second):
        track.wrote(one)
    read = [record_of(one.encoded, at) for at, one in enumerate((first, second, second))]
    for record in read:
        track.keep(record)
        elsewhere, _ = fold(elsewhere, decode_event(record.key, record.value, record.headers))
    # when they are folded
    track.fold()
    # then what was given is what was accepted, and every other reader comes to the same
    assert [event.body for event, _ in track.history()] == [first.body, second.body]
    assert track.history()[1][0].body is second.body
    assert track.state == elsewhere
    assert track.accepted(1, second.encoded.hash)
    assert not track._own


def test_other_bytes_under_the_hash_of_an_own_event_are_found_out() -> None:
    # given a record that states the hash of an own event, and says something else
    first = claim()
    second = own(1, 1, first.encoded.hash, TimerFired(timer_id="a"))
    track = recording()
    for one in (first, second):
        track.wrote(one)
    track.keep(record_of(first.encoded, 0))
    other = own(1, 1, first.encoded.hash, TimerFired(timer_id="b"))
    track.keep(record_of(second.encoded._replace(value=other.encoded.value), 1))
    # when it is folded
    track.fold()
    # then it is told as tampered with, by whoever wrote the event too
    assert not track.accepted(1, second.encoded.hash)
    assert track.state.fault is not None
    assert track.state.fault.verdict == "tampered"


def test_only_the_newest_are_remembered() -> None:
    track = recording()
    for number in range(OWN_EVENTS_MAX + 3):
        track.wrote(own(number, 1, ZERO_HASH, TimerFired(timer_id=str(number))))
    assert len(track._own) == OWN_EVENTS_MAX
