"""Faults of processors on a real log and a real Redis: each ends in a state that says what to do, and loses nothing."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, ClassVar

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined]

from tests.integration.test_processors import all_of_them, assert_all_equal_a_fresh_fold, at_work, compared, running
from tests.support.projecting import World, append_runs, world_on
from tracklog.consumers.projections import Projections
from tracklog.infra.clock import SystemClock, SystemEntropy
from tracklog.infra.redis_client import connect
from tracklog.infra.stack.process import wait_until
from tracklog.infra.topic_admin import ensure_writable
from tracklog.processors.builtin.spend import Spend
from tracklog.processors.processor import Processor, Seen, Shape
from tracklog.processors.running import processes
from tracklog.processors.writes import Rank
from tracklog.schemas.errors import SettingsError, StoreError, TopicMismatch

LogUrls = Callable[[str], str]
BOUND_S = 30.0
SMALL_BYTES = 2_000


@pytest.fixture
def world(log_urls: LogUrls, redis_db: str, fresh_prefix: str) -> Iterator[World]:
    settings = {"state_bytes_max": SMALL_BYTES, "parked_max": 100}
    with world_on(log_urls("sqlite"), redis_db, fresh_prefix, processors=settings) as made:
        yield made


class Wrong(Processor[list[str]]):
    """A processor to be wrong: `fault` says how, for every third run."""

    name = "wrong"
    version = 1
    layout: ClassVar = {"seen": Shape.SORTED_SET}

    def __init__(self, fault: str = "") -> None:
        self._fault = fault

    def start(self, key: str) -> list[str]:
        return []

    def apply(self, state: list[str], seen: Seen) -> Any:
        if int(seen.event.envelope.trajectory_id[-4:]) % 3 == 0 and self._fault:
            return self._wrong(state, seen)
        return [*state, seen.event.name]

    def _wrong(self, state: list[str], seen: Seen) -> Any:
        match self._fault:
            case "raises":
                raise RuntimeError("no idea")
            case "is short of memory":
                raise MemoryError("too much")
            case "returns nothing":
                return None
            case _:
                return [*state, "x" * SMALL_BYTES]

    def writes(self, key: str, before: list[str] | None, after: list[str]) -> Iterator[Rank]:
        yield Rank(["seen"], key, len(after))


@pytest.mark.parametrize("fault", ["raises", "is short of memory", "returns nothing", "grows without bound"])
def test_a_wrong_processor_parks_what_it_is_wrong_about_and_is_corrected(world: World, fault: str) -> None:
    append_runs(world, 9)
    at_work(world, [Wrong(fault), Spend()]).drain()

    projections = Projections(world.log, world.client, world.settings)
    shown = projections.one("wrong")
    assert sorted(shown.parked) == ["run-0000", "run-0003", "run-0006"]
    assert all(parked.error for _, parked in shown.parked.values())
    if fault == "grows without bound":
        assert str(SMALL_BYTES) in shown.parked["run-0000"][1].error
    assert shown.behind == 0
    assert_all_equal_a_fresh_fold(world, [Spend()])

    projections.retry("wrong", [])
    at_work(world, [Wrong(), Spend()]).drain()
    assert projections.one("wrong").parked == {}
    assert_all_equal_a_fresh_fold(world, [Wrong()])


class NewSpend(Spend):
    version = 2


def test_two_versions_are_folded_side_by_side_and_readers_follow_the_first_until_they_are_turned_over(
    world: World,
) -> None:
    append_runs(world, 6)
    at_work(world, [Spend()]).drain()
    at_work(world, [NewSpend()]).drain()
    append_runs(world, 3, first=6)
    at_work(world, [Spend()]).drain()
    at_work(world, [NewSpend()]).drain()

    projections = Projections(world.log, world.client, world.settings)
    assert projections.one("spend").version == 1
    assert_all_equal_a_fresh_fold(world, [Spend(), NewSpend()])
    projections.rebuild(NewSpend(), lambda _: None)
    assert projections.one("spend").version == 2


def test_another_group_goes_on_where_the_store_is_and_counts_nothing_again(world: World) -> None:
    append_runs(world, 6)
    with running(at_work(world, all_of_them())):
        assert wait_until(lambda: compared(world, Spend()).positions == world.ends(), BOUND_S)
    renamed = at_work(world, all_of_them())
    append_runs(world, 3, first=6)
    with running(replace(renamed, group=f"{world.settings.prefix}.renamed")):
        assert wait_until(lambda: dict(renamed.loop.positions) == world.ends(), BOUND_S)
    assert renamed.bundle.counts.records < sum(world.ends().values())
    assert_all_equal_a_fresh_fold(world, all_of_them())


def test_another_database_is_another_store_that_is_filled_from_the_beginning(world: World, redis_db: str) -> None:
    append_runs(world, 6)
    at_work(world, [Spend()]).drain()
    other = connect(re.sub(r"(/|db=)0$", r"\g<1>9", redis_db), timeout_s=5)
    try:
        elsewhere = world._replace(client=other)
        with pytest.raises(StoreError):
            elsewhere.positions()
        at_work(elsewhere, [Spend()]).drain()
        assert_all_equal_a_fresh_fold(elsewhere, [Spend()])
        assert_all_equal_a_fresh_fold(world, [Spend()])
    finally:
        other.flushdb()
        other.close()


def test_a_topic_that_was_given_more_partitions_is_refused_before_anything_is_folded(
    log_urls: LogUrls, redis_db: str, fresh_prefix: str, kafka_bootstrap: str
) -> None:
    """A key then belongs elsewhere than its events lie: who goes on would split trajectories in two."""
    with world_on(log_urls("kafka"), redis_db, fresh_prefix) as world:
        append_runs(world, 3)
        before = at_work(world, [Spend()]).drain()
        admin = AdminClient({"bootstrap.servers": kafka_bootstrap})
        for future in admin.create_partitions([NewPartitions(world.topic, 6)]).values():
            future.result(BOUND_S)
        assert wait_until(lambda: world.log.describe(world.topic).spec.partitions == 6, BOUND_S)

        with pytest.raises(TopicMismatch, match="partitions"):
            ensure_writable(world.log, world.settings.topic_specs())
        with pytest.raises(SettingsError, match="folded from 3 partitions, and the topic has 6") as caught:
            at_work(world, [Spend()]).bundle.restore(0)

        assert "another prefix" in caught.value.hint
        assert caught.value.exit_code == 2
        assert Projections(world.log, world.client, world.settings).one("spend").positions == before


def test_a_log_whose_beginning_is_gone_is_folded_from_what_is_there_and_says_how_much_is_missing(world: World) -> None:
    append_runs(world, 12)
    world.log.delete_records(world.topic, {0: world.ends()[0] // 2})
    append_runs(world, 4, first=12)

    work = processes([Spend()], world.log, world.client, world.settings, clock=SystemClock(), entropy=SystemEntropy())
    work.drain()

    assert work.loop.trimmed[0] > 0
    assert set(work.loop.trimmed) == {0}
    assert_all_equal_a_fresh_fold(world, [Spend()])
