"""The built-in projection on Apache Kafka: the same content as a fresh fold, alone and as a group that changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Producer

from tests.support.chains import Made, append_all, run_of
from tests.support.projecting import (
    World,
    append_runs,
    assert_equals_fresh_fold,
    followed,
    said,
    wait_caught_up,
    world_on,
)
from tracklog.consumers.verify import Verification
from tracklog.infra.log.partitioner import partition_of
from tracklog.infra.log.ranges import read_range


@pytest.fixture
def world(log_urls: Callable[[str], str], redis_db: str, fresh_prefix: str) -> Iterator[World]:
    with world_on(log_urls("kafka"), redis_db, fresh_prefix) as made:
        yield made


def test_every_trajectory_in_redis_equals_a_fresh_fold_of_the_log(world: World) -> None:
    append_runs(world, 20)
    append_all(world.log, world.topic, [Made(b"stranger", b"foreign bytes", (), b"")])

    positions = world.drain()

    assert positions == world.ends()
    assert assert_equals_fresh_fold(world) == 20


def test_a_group_that_changes_under_load_and_a_wiped_redis_end_equal(world: World) -> None:
    append_runs(world, 10)
    with followed(world) as first:
        wait_caught_up(world)
        append_runs(world, 10, first=10)
        with followed(world):
            append_runs(world, 10, first=20)
            wait_caught_up(world)
            world.client.flushdb()
            append_runs(world, 10, first=30)
            wait_caught_up(world)
        append_runs(world, 10, first=40)
        wait_caught_up(world)
        assert first.loop.progress.alive()

    assert assert_equals_fresh_fold(world) == 50


def test_transactions_of_others_are_survived_and_the_position_passes_their_markers(
    world: World, kafka_bootstrap: str
) -> None:
    options = {"bootstrap.servers": kafka_bootstrap, "partitioner": "murmur2_random"}
    producer = Producer({**options, "transactional.id": world.settings.prefix})
    producer.init_transactions(20)
    for name, committed in (("first", True), ("aborted", False), ("last", True)):
        producer.begin_transaction()
        for made in run_of(name, turns=1).records:
            producer.produce(world.topic, key=made.key, value=made.value, headers=list(made.headers))
        producer.commit_transaction(20) if committed else producer.abort_transaction(20)

    with followed(world):
        wait_caught_up(world)

    assert assert_equals_fresh_fold(world) == 2
    assert world.drain() == world.ends()


def test_records_that_another_partitioner_put_elsewhere_are_put_away_and_make_no_second_trajectory(
    world: World, kafka_bootstrap: str
) -> None:
    append_runs(world, 3)
    run = run_of("astray", turns=1)
    append_all(world.log, world.topic, run.records)
    count = world.log.partition_count(world.topic)
    home = partition_of(b"astray", count)
    producer = Producer({"bootstrap.servers": kafka_bootstrap})
    for made in run.records[:2]:
        place = (home + 1) % count
        producer.produce(world.topic, made.value, made.key, partition=place, headers=list(made.headers))
    assert producer.flush(20) == 0

    world.drain()

    shown = [one.trajectory_id for one in said(world.reader().states()).trajectories]
    assert sorted(shown).count("astray") == 1
    topic = world.settings.topic_names.quarantine
    kept = [r for p in range(count) for r in read_range(world.log, topic, p, *world.log.bounds(topic, p))]
    assert [dict(r.headers)["tl-reason"].startswith(b"its key belongs into partition") for r in kept] == [True, True]
    audit = Verification(world.log, world.topic)
    assert all(report.sound for report in audit.reports())
    assert audit.foreign_total == 2
