from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.support.chains import run_of
from tracklog.infra.log.port import Record
from tracklog.processors.trajectory import Trajectory
from tracklog.processors.warm_log import (
    WarmLogBounds,
    decode_entry,
    decode_offsets,
    encode_entry,
    encode_offsets,
    warm_log_writes,
)
from tracklog.processors.writes import Extend, Keep
from tracklog.schemas.state import State

HEADERS = st.lists(st.tuples(st.text(max_size=60).filter(lambda t: len(t.encode()) < 256), st.binary(max_size=300)))


@given(st.integers(0, 2**62), st.integers(0, 2**62), st.binary(max_size=2000), HEADERS)
def test_a_record_comes_back_from_its_entry(
    offset: int, time_ms: int, value: bytes, headers: list[tuple[str, bytes]]
) -> None:
    record = Record("t", 3, offset, time_ms, b"key", value, tuple(headers))

    assert decode_entry(encode_entry(record), "t", 3, b"key") == record


@given(st.lists(st.integers(0, 2**62), unique=True).map(sorted), st.data())
def test_offsets_come_back_however_they_were_split_into_batches(offsets: list[int], data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(offsets)))
    head, tail = offsets[:cut], offsets[cut:]

    encoded = encode_offsets(head, 0) + encode_offsets(tail, head[-1] if head else 0)

    assert decode_offsets(encoded) == offsets


def test_no_more_entries_are_sent_than_are_kept() -> None:
    records = [
        Record("t", 0, n, n, b"a", made.value, made.headers) for n, made in enumerate(run_of("a", turns=5).records)
    ]
    after = Trajectory(State("a"), 0, 0, records[-1].offset, 0, 99)

    extend, keep = warm_log_writes(None, after, records, WarmLogBounds(events_max=3, bytes_max=10_000, age_ms=1_000))

    assert isinstance(extend, Extend)
    assert isinstance(keep, Keep)
    assert decode_offsets(extend.data) == [record.offset for record in records]
    assert [decode_entry(entry, "t", 0, b"a") for entry in keep.entries] == records[-3:]
    assert keep.expire_at_ms == 1_099
    assert (keep.shelf.name, keep.grown_ms) == ("", 99)
