"""The built-in projection on a real log and a real Redis: equal to a fresh fold, whatever comes in between."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.chains import Chain, Made, append_all, run_of
from tests.support.projecting import (
    World,
    append_runs,
    assert_equals_fresh_fold,
    followed,
    said,
    stored_under,
    wait_caught_up,
    world_on,
)
from tracklog.infra.log.partitioner import partition_of
from tracklog.infra.log.ranges import append_and_wait
from tracklog.schemas import events as ev
from tracklog.schemas.codec import HEADER_HASH
from tracklog.schemas.errors import OffsetTrimmed, SettingsError, StoreConflict
from tracklog.schemas.values import Driver

LogUrls = Callable[[str], str]


@pytest.fixture
def world(log_urls: LogUrls, redis_db: str, fresh_prefix: str) -> Iterator[World]:
    with world_on(log_urls("sqlite"), redis_db, fresh_prefix) as made:
        yield made


def test_every_trajectory_in_redis_equals_a_fresh_fold_of_the_log(world: World) -> None:
    append_runs(world, 30)

    positions = world.drain()

    assert positions == world.ends()
    assert assert_equals_fresh_fold(world) == 30


def test_an_empty_log_is_folded_to_nothing(world: World) -> None:
    assert world.drain() == {0: 0, 1: 0, 2: 0}
    assert world.drain() == {0: 0, 1: 0, 2: 0}


def test_new_events_go_on_from_where_the_store_stands(world: World) -> None:
    append_runs(world, 10)
    world.drain()
    append_runs(world, 10, first=10)

    second = world.running()
    second.loop.drain()

    assert assert_equals_fresh_fold(world) == 20
    assert second.bundle.counts.records < sum(world.ends().values())


def test_states_that_left_memory_are_read_back(log_urls: LogUrls, redis_db: str, fresh_prefix: str) -> None:
    few = {"trajectories_cached_max": 2}
    with world_on(log_urls("sqlite"), redis_db, fresh_prefix, projection=few) as world:
        append_runs(world, 25)
        running = world.running()

        running.loop.drain()

        assert running.projection.loaded > 25
        assert assert_equals_fresh_fold(world) == 25


def test_records_that_are_not_accepted_are_kept_and_change_no_state_but_its_counters(world: World) -> None:
    chain = run_of("disturbed", turns=1, ending=None)
    retry = chain.records[-1]
    lost = chain.peek(ev.OwnershipClaimed(owner="late", nonce=bytes(16), driver=Driver.IMPORT))
    late = chain.peek(ev.TimerFired(timer_id="former owner"))
    chain.claim("next")
    ahead = Chain("disturbed")
    ahead.seq, ahead.epoch = 90, 2
    records = [*chain.records, retry, lost, late, ahead.add(ev.TimerFired(timer_id="gap")), _tampered(retry)]

    append_all(world.log, world.topic, records)
    world.drain()

    assert_equals_fresh_fold(world)
    found = said(world.reader().state("disturbed"))
    assert found is not None
    assert found.state.harmless == {"duplicate": 1, "fenced": 2, "gap": 1}
    assert found.state.faults == 1
    assert found.status == "faulty"
    assert len(said(world.reader().kept("disturbed")).records) == len(records)


def _tampered(made: Made) -> Made:
    headers = tuple((name, bytes(32) if name == HEADER_HASH else value) for name, value in made.headers)
    return made._replace(headers=headers)


def test_a_batch_that_is_written_twice_changes_nothing_the_second_time(world: World) -> None:
    append_runs(world, 6)
    running = world.running()
    before = running.store.checkpoint(0)
    running.loop.drain()
    base = running.store.keys.base(0)
    stored = stored_under(world.client, base)

    with pytest.raises(StoreConflict):
        running.store.commit(0, before, 5, [])

    assert stored_under(world.client, base) == stored


def test_a_zombie_that_wakes_with_old_states_does_no_harm(world: World) -> None:
    append_runs(world, 20)
    zombie = world.running()
    half = {p: end // 2 for p, end in world.ends().items()}
    stopped, woken = threading.Event(), threading.Event()
    send = zombie.store.send

    def freezing(partition: int, expected: object, position: int, writes: object) -> object:
        if position >= half[partition] and not woken.is_set():
            stopped.set()
            assert woken.wait(30)
        return send(partition, expected, position, writes)  # type: ignore[arg-type]

    zombie.store.send = freezing  # type: ignore[method-assign, assignment]
    thread = threading.Thread(target=zombie.loop.drain, daemon=True)
    thread.start()
    assert stopped.wait(30)
    world.drain()
    append_runs(world, 5, first=20)
    woken.set()
    thread.join(30)

    assert not thread.is_alive()
    world.drain()
    assert assert_equals_fresh_fold(world) == 25


def test_several_owners_of_one_partition_at_once_do_no_harm(world: World) -> None:
    append_runs(world, 40)

    with ThreadPoolExecutor(3) as pool:
        drained = [pool.submit(world.drain) for _ in range(3)]
        positions = [one.result(60) for one in drained]

    assert positions == [world.ends()] * 3
    assert assert_equals_fresh_fold(world) == 40


def test_a_wiped_redis_is_noticed_and_healed_without_a_new_event(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tracklog.infra.partition_loop.IDLE_FOLD_S", 0.2)
    append_runs(world, 10)
    with followed(world):
        wait_caught_up(world)

        world.client.flushdb()

        wait_caught_up(world)
    assert assert_equals_fresh_fold(world) == 10


def test_a_redis_wiped_under_load_is_healed(world: World) -> None:
    append_runs(world, 10)
    with followed(world):
        for first in (10, 20, 30):
            wait_caught_up(world)
            world.client.flushdb()
            append_runs(world, 10, first=first)
        wait_caught_up(world)
    assert assert_equals_fresh_fold(world) == 40


def test_a_log_whose_beginning_was_trimmed_goes_on_and_says_so(world: World) -> None:
    append_runs(world, 10)
    world.log.delete_records(world.topic, {0: 7})
    running = world.running()

    running.loop.drain()

    assert running.loop.trimmed == {0: 7}
    assert_equals_fresh_fold(world)


def test_a_store_that_was_folded_from_another_log_is_refused(
    world: World, log_urls: LogUrls, redis_db: str, fresh_prefix: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    append_runs(world, 3)
    world.drain()
    other = f"sqlite:{tmp_path_factory.mktemp('other') / 'log.db'}"

    with (
        world_on(other, redis_db, fresh_prefix) as second,
        pytest.raises(SettingsError, match="was folded from the log"),
    ):
        second.drain()


def test_a_store_ahead_of_its_log_is_an_error_and_not_a_silent_wait(world: World) -> None:
    append_runs(world, 3)
    running = world.running()
    running.loop.drain()
    at = running.store.checkpoint(0)
    assert at is not None
    running.store.commit(0, at, at.position + 5, [])

    with pytest.raises(OffsetTrimmed, match="the log ends at"):
        world.drain()


def test_partition_0_offset_0_is_a_position_like_any_other(world: World) -> None:
    first = next(f"id-{n}" for n in range(100) if _partition(world, f"id-{n}") == 0)
    append_all(world.log, world.topic, run_of(first, turns=1).records)

    world.drain()

    found = said(world.reader().state(first))
    assert found is not None
    assert (found.partition, found.first_offset) == (0, 0)
    assert said(world.reader().kept(first)).complete


def _partition(world: World, trajectory_id: str) -> int:
    return partition_of(trajectory_id.encode(), len(world.ends()))


def test_two_members_share_the_partitions_and_a_third_takes_over(world: World) -> None:
    with followed(world):
        append_runs(world, 10)
        with followed(world):
            append_runs(world, 10, first=10)
            wait_caught_up(world)
        append_runs(world, 10, first=20)
        with followed(world):
            wait_caught_up(world)
    assert assert_equals_fresh_fold(world) == 30


def test_the_group_is_told_where_the_projection_stands(world: World) -> None:
    append_runs(world, 5)
    with followed(world) as running:
        wait_caught_up(world)
    listener = _Nothing()
    member = world.log.group(running.group, world.topic, listener)

    committed = member.committed(list(world.ends()))
    member.close()

    assert dict(committed) == world.ends()


class _Nothing:
    def assigned(self, partitions: object) -> dict[int, int]:
        return {}

    def revoked(self, partitions: object) -> None: ...

    def lost(self, partitions: object) -> None: ...


def test_a_record_far_over_a_batch_is_folded_alone(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tracklog.infra.partition_loop_owner.BATCH_BYTES_MAX", 2000)
    append_all(world.log, world.topic, run_of("wide", turns=4, padding=1500).records)
    running = world.running()

    running.loop.drain()

    assert running.bundle.counts.batches > 4
    assert assert_equals_fresh_fold(world) == 1


def test_a_script_cache_that_was_flushed_is_filled_again(world: World) -> None:
    append_runs(world, 5)
    running = world.running()
    running.loop.drain()
    world.client.script_flush()
    append_and_wait(world.log, world.topic, *run_of("after").records[0][:3], timeout_s=10)

    running.loop.drain()

    assert assert_equals_fresh_fold(world) == 6
