"""Records that are not ours, and records from the future: the first are put away, the others kept, the rest flows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import cast

import pytest

from tests.support.chains import Made, append_all, interleaved
from tests.support.projecting import PARTITIONS, World, assert_equals_fresh_fold, said, some_runs, world_on
from tracklog.infra.log.partitioner import partition_of
from tracklog.infra.log.port import Delivered, Headers, Log, Record
from tracklog.infra.log.ranges import read_range
from tracklog.infra.log.record_size import RECORD_BYTES_MAX
from tracklog.processors.quarantine import FULL_BYTES, REASON, SOURCE_OFFSET, SOURCE_PARTITION, SOURCE_TOPIC
from tracklog.schemas.catalog import HEADER_TYPE
from tracklog.schemas.chain import event_hash
from tracklog.schemas.codec import HEADER_HASH, SINGLE_OBJECT_MARK
from tracklog.schemas.errors import AppendError, AppendRefused, AppendUnknown

FOREIGN = [
    Made(b"run-0001", b"not Avro at all", (("who", b"a stranger"),), b""),
    Made(b"run-0001", b"", (), b""),
    Made(b"run-0002", b"\xc3\x01short", (), b""),
    Made(b"stranger", b'{"json": true}', (), b""),
]


@pytest.fixture
def world(log_urls: Callable[[str], str], redis_db: str, fresh_prefix: str) -> Iterator[World]:
    with world_on(log_urls("sqlite"), redis_db, fresh_prefix) as made:
        yield made


def quarantined(world: World) -> list[Record]:
    topic = world.settings.topic_names.quarantine
    ends = {p: world.log.bounds(topic, p).end for p in range(PARTITIONS)}
    return [record for p, end in ends.items() for record in read_range(world.log, topic, p, 0, end)]


def test_foreign_records_are_put_away_once_with_reason_and_source_and_the_rest_flows(world: World) -> None:
    runs = interleaved(some_runs(6))
    positions = append_all(world.log, world.topic, [FOREIGN[0], *runs[:20], *FOREIGN[1:], *runs[20:]])
    running = world.running()

    running.loop.drain()
    world.drain()

    assert assert_equals_fresh_fold(world) == 6
    assert running.bundle.counts.foreign == len(FOREIGN)
    found = {source_of(record): record for record in quarantined(world)}
    assert len(found) == len(quarantined(world)) == len(FOREIGN)
    where = [positions[0], *positions[21 : 21 + len(FOREIGN) - 1]]
    for made, position in zip(FOREIGN, where, strict=True):
        record = found[position.partition, position.offset]
        assert (record.key, record.value) == (made.key, made.value)
        assert record.headers[: len(made.headers)] == made.headers
        assert dict(record.headers)[SOURCE_TOPIC] == world.topic.encode()
        assert dict(record.headers)[REASON]


def source_of(record: Record) -> tuple[int, int]:
    headers = dict(record.headers)
    return int(headers[SOURCE_PARTITION]), int(headers[SOURCE_OFFSET])


def test_a_foreign_record_at_partition_0_offset_0_is_put_away_like_any_other(world: World) -> None:
    key = next(k for k in (b"k%d" % n for n in range(100)) if partition_of(k, PARTITIONS) == 0)
    append_all(world.log, world.topic, [Made(key, b"foreign", (), b"")])

    assert world.drain() == {0: 1, 1: 0, 2: 0}

    assert [source_of(record) for record in quarantined(world)] == [(0, 0)]


def test_a_foreign_record_as_large_as_the_log_takes_is_put_away_cut(world: World) -> None:
    size = RECORD_BYTES_MAX - 100
    append_all(world.log, world.topic, [Made(b"large", b"x" * size, (), b"")])

    world.drain()

    (record,) = quarantined(world)
    assert dict(record.headers)[FULL_BYTES] == str(size).encode()
    assert record.value is not None
    assert 0 < len(record.value) < size
    assert set(record.value) == {ord("x")}


def test_an_unknown_event_type_is_kept_and_not_put_away(world: World) -> None:
    chain = some_runs(1)[0]
    known = chain.records[-1]
    fingerprint = b"FUTURE!!"
    payload = known.value[10:]
    digest = event_hash(fingerprint, payload)
    headers = ((HEADER_TYPE, b"BrandNew"), (HEADER_HASH, digest))
    unknown = Made(known.key, SINGLE_OBJECT_MARK + fingerprint + payload, headers, digest)
    append_all(world.log, world.topic, [*chain.records[:-1], unknown])

    world.drain()

    found = said(world.reader().state(chain.trajectory_id))
    assert found is not None
    assert found.state.unknown == 1
    assert found.state.events == len(chain.records)
    assert said(world.reader().kept(chain.trajectory_id)).records[-1].value == unknown.value
    assert quarantined(world) == []
    assert_equals_fresh_fold(world)


def test_the_position_does_not_pass_poison_that_could_not_be_put_away(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    append_all(world.log, world.topic, [Made(b"run-0001", b"foreign", (), b"")])
    refusing = Refusing(world.log, AppendRefused("no"), times=1)

    with pytest.raises(AppendRefused):
        World(cast(Log, refusing), world.client, world.settings).drain()

    assert world.positions() == {0: 0, 1: 0, 2: 0}
    world.drain()
    assert len(quarantined(world)) == 1


def test_an_unknown_outcome_of_putting_away_is_tried_again(world: World) -> None:
    append_all(world.log, world.topic, [*FOREIGN[:2], *interleaved(some_runs(2))])
    refusing = Refusing(world.log, AppendUnknown("who knows"), times=1)

    World(cast(Log, refusing), world.client, world.settings).drain()

    assert len({source_of(record) for record in quarantined(world)}) == 2
    assert assert_equals_fresh_fold(world) == 2


class Refusing:
    """A log whose first appends end in an error; all else is the real one."""

    def __init__(self, log: Log, error: AppendError, *, times: int) -> None:
        self._log = log
        self._error = error
        self._times = times

    def __getattr__(self, name: str) -> object:
        return getattr(self._log, name)

    def append(self, topic: str, key: bytes, value: bytes, headers: Headers, delivered: Delivered) -> None:
        if self._times > 0:
            self._times -= 1
            delivered(None, self._error)
            return
        self._log.append(topic, key, value, headers, delivered)
