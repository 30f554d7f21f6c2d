"""Processors on a real log and a real Redis: plugged in, killed, wiped, side by side. Always equal to a fresh fold."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from tests.support.beside import beside
from tests.support.projecting import World, append_runs, world_on
from tracklog.infra.clock import SystemClock, SystemEntropy
from tracklog.processors.builtin.spend import Spend
from tracklog.processors.comparing import Compared, compare
from tracklog.processors.loading import BUILTIN
from tracklog.processors.processor import Processor, Seen
from tracklog.processors.running import Processes, processes, store_of
from tracklog.schemas.errors import InvalidProcessor, StoreConflict

LogUrls = Callable[[str], str]
BOUND_S = 40.0


@pytest.fixture
def world(log_urls: LogUrls, redis_db: str, fresh_prefix: str) -> Iterator[World]:
    with world_on(log_urls("sqlite"), redis_db, fresh_prefix) as made:
        yield made


def all_of_them() -> list[Processor[Any]]:
    return [kind() for kind in BUILTIN]


def at_work(world: World, processors: Sequence[Processor[Any]], *, builtin: bool = False) -> Processes:
    return processes(
        processors,
        world.log,
        world.client,
        world.settings,
        clock=SystemClock(),
        entropy=SystemEntropy(),
        builtin=builtin,
    )


@contextmanager
def running(work: Processes) -> Iterator[None]:
    """Follows the log in a thread. What it raises is raised at the end."""
    with beside(lambda stop: work.loop.run(work.group, stop), BOUND_S):
        yield


def compared(world: World, processor: Processor[Any]) -> Compared:
    info = world.log.describe(world.topic)
    store = store_of(processor, info, world.client, world.settings, SystemEntropy())
    return compare(processor, store, world.log, world.settings, partitions=info.spec.partitions, clock=SystemClock())


def assert_all_equal_a_fresh_fold(world: World, processors: Sequence[Processor[Any]]) -> None:
    for one in processors:
        result = compared(world, one)
        assert result.difference is None
        assert result.positions == world.ends()


def test_all_that_come_with_it_are_folded_by_one_reading_beside_the_trajectories(world: World) -> None:
    append_runs(world, 25)
    at_work(world, all_of_them(), builtin=True).drain()

    assert_all_equal_a_fresh_fold(world, all_of_them())
    assert compared(world, Spend()).keys > 25
    assert world.positions() == world.ends()


def test_one_that_is_plugged_in_later_starts_at_the_beginning_and_the_others_pass_over_what_they_have(
    world: World,
) -> None:
    append_runs(world, 10)
    first = [kind() for kind in BUILTIN[:3]]
    at_work(world, first, builtin=True).drain()
    append_runs(world, 5, first=10)

    at_work(world, all_of_them(), builtin=True).drain()

    assert_all_equal_a_fresh_fold(world, all_of_them())


class Stopping(Spend):
    """Ends its process at the n-th event, as a kill would: between two steps of a batch."""

    left = 0

    def apply(self, state: Any, seen: Seen) -> Any:
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt
        return super().apply(state, seen)


@pytest.mark.parametrize("after", [1, 7, 20])
def test_a_process_that_ends_in_the_middle_leaves_nothing_half_done(world: World, after: int) -> None:
    append_runs(world, 12)
    stopping = Stopping()
    stopping.left = after
    with pytest.raises(KeyboardInterrupt):
        at_work(world, [stopping, BUILTIN[5]()]).drain()

    at_work(world, [Spend(), BUILTIN[5]()]).drain()

    assert_all_equal_a_fresh_fold(world, [Spend(), BUILTIN[5]()])


def test_a_wiped_store_is_filled_again_by_the_process_that_is_running(world: World) -> None:
    append_runs(world, 8)
    work = at_work(world, all_of_them())
    work.drain()
    world.client.flushdb()
    append_runs(world, 4, first=8)

    at_work(world, all_of_them()).drain()

    assert_all_equal_a_fresh_fold(world, all_of_them())


def test_two_owners_of_one_partition_do_not_count_anything_twice(world: World) -> None:
    append_runs(world, 6)
    zombie = at_work(world, all_of_them())
    for partition in world.ends():
        zombie.bundle.restore(partition)
    at_work(world, all_of_them()).drain()

    records = [record for record in world.records() if record.partition == 0]
    with pytest.raises(StoreConflict):
        zombie.bundle.fold(0, records, len(records))()

    assert_all_equal_a_fresh_fold(world, all_of_them())


def test_what_somebody_changed_in_redis_is_named(world: World) -> None:
    append_runs(world, 6)
    at_work(world, [Spend()]).drain()
    key = next(world.client.scan_iter(match=f"{world.settings.prefix}:{{*}}:spend:v1:meter:*"))
    field = next(name for name in map(_raw, world.client.hgetall(key)) if name.endswith(b"|calls"))
    world.client.hincrby(key, field, 1)

    found = compared(world, Spend()).difference

    assert found is not None
    assert key.decode().endswith(found.key)
    assert int(found.stored[field]) == int(found.folded[field]) + 1


def _raw(name: Any) -> bytes:
    """As the client gives it, whatever its types say."""
    assert isinstance(name, bytes)
    return name


class OtherLayout(Spend):
    layout = {}  # noqa: RUF012


def test_a_changed_layout_needs_a_new_version(world: World) -> None:
    append_runs(world, 1)
    at_work(world, [Spend()]).drain()

    with pytest.raises(InvalidProcessor, match="needs a new version"):
        at_work(world, [OtherLayout()]).drain()
