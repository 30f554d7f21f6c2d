"""Exporting from a real broker: holes of control records, members that come and go, the commit that is a hint."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.support.exporting import PARTITIONS, Exporting, exporting_on, runs
from tracklog.infra.stack.process import wait_until
from tracklog.schemas.events import EVENT_TYPES

WAIT_S = 60.0

pytestmark = pytest.mark.kafka


@pytest.fixture
def world(kafka_bootstrap: str, fresh_prefix: str, tmp_path: Path) -> Iterator[Exporting]:
    with exporting_on(f"kafka://{kafka_bootstrap}", fresh_prefix, tmp_path, cold={"age_s": 1.0}) as world:
        yield world


def test_offsets_that_the_log_gives_nobody_are_counted_and_no_row_is_missing(
    world: Exporting, kafka_bootstrap: str
) -> None:
    """A transaction of somebody else's leaves a marker, and an aborted one its records too."""
    world.fill(*runs(12))
    producer = Producer({"bootstrap.servers": kafka_bootstrap, "transactional.id": world.settings.prefix})
    producer.init_transactions(WAIT_S)
    for commits in (True, False):
        producer.begin_transaction()
        for partition in range(PARTITIONS):
            producer.produce(world.topic, b"not ours", key=b"x", partition=partition)
        assert producer.flush(WAIT_S) == 0
        (producer.commit_transaction if commits else producer.abort_transaction)(WAIT_S)
    world.fill(*runs(12, tenant="late"))

    world.drain()

    rows, foreign, table = world.rows(), world.undecodable(), world.table()
    for partition in range(PARTITIONS):
        places = sorted((r["offset"], r["skipped"]) for r in [*rows, *foreign] if r["partition"] == partition)
        at = table.first_offset(partition)
        assert at == 0
        for offset, skipped in places:
            assert offset - skipped == at
            at = offset + 1
        assert at == table.next_offset(partition)
        assert sum(skipped for _, skipped in places) == 3  # a marker, an aborted record and its marker
    assert len(rows) + len(foreign) == len(world.expected())
    assert EVENT_TYPES.keys() >= {row["event_type"] for row in rows}


def test_members_that_come_and_go_export_everything_once(world: Exporting) -> None:
    stops = [threading.Event(), threading.Event()]
    works = [world.export(), world.export()]
    threads = [
        threading.Thread(target=work.loop.run, args=(work.group, stop), daemon=True)
        for work, stop in zip(works, stops, strict=True)
    ]
    written = world.fill(*runs(10))
    threads[0].start()
    try:
        wait_until(lambda: works[0].told.events > 0, WAIT_S)
        threads[1].start()
        wait_until(lambda: bool(works[1].exporter.stored), WAIT_S)
        written += world.fill(*runs(10, tenant="second"))
        wait_until(lambda: sum(work.told.events for work in works) == written, WAIT_S)
        stops[0].set()
        threads[0].join(WAIT_S)
        written += world.fill(*runs(10, tenant="third"))
        wait_until(lambda: sum(work.told.events for work in works) == written, WAIT_S)
    finally:
        for stop in stops:
            stop.set()
        for thread in threads:
            thread.join(WAIT_S)

    assert world.exported() == world.expected()
    assert not any(work.exporter.unflushed for work in works)
