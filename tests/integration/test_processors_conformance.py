"""One suite for both runners, on Apache Kafka and a real Redis: whatever comes, wherever they end, it is the same."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from tests.integration.test_faust import on_faust
from tests.integration.test_processors import all_of_them, assert_all_equal_a_fresh_fold, at_work
from tests.support.chains import append_all, interleaved
from tests.support.projecting import World, some_runs, world_on
from tracklog.consumers.projections import Projections
from tracklog.infra.stack.process import wait_until
from tracklog.processors.builtin.spend import Spend
from tracklog.processors.builtin.tool_stats import ToolStats
from tracklog.processors.faust_runner import FaustRun
from tracklog.processors.processor import Processor, Seen
from tracklog.processors.running import Processes
from tracklog.processors.sample_runs import Made
from tracklog.schemas.errors import InvalidProcessor

BOUND_S = 60.0
RUNNERS = ("native", "faust")


@pytest.fixture
def world(log_urls: Callable[[str], str], redis_db: str, fresh_prefix: str) -> Iterator[World]:
    with world_on(log_urls("kafka"), redis_db, fresh_prefix) as made:
        yield made


class Ended(BaseException):
    """Nothing handles it, as nothing handles a kill."""


class Ending(Spend):
    """Ends its process at the n-th event that it takes in, once: between two steps of a batch."""

    left = -1

    def apply(self, state: Any, seen: Seen) -> Any:
        self.left -= 1
        if self.left == 0:
            raise Ended
        return super().apply(state, seen)


class Failing(ToolStats):
    """Cannot take in one trajectory's result."""

    def apply(self, state: Any, seen: Seen) -> Any:
        if seen.event.name == "ToolResult" and seen.event.envelope.trajectory_id == "run-0001":
            raise ValueError("cannot be read")
        return super().apply(state, seen)


def disturbed(made: Sequence[Made]) -> Iterator[Made]:
    """Every record in its order, with one that is still to come before it, and one that was there again behind it."""
    for n, one in enumerate(made):
        later = [other for other in made[n + 2 : n + 60] if other.key == one.key]
        if n % 5 == 0 and len(later) > 1:
            yield later[-1]
        yield one
        if n % 3 == 0:
            yield made[n // 2]


async def followed_to_the_end(runner: str, world: World, work: Processes) -> None:
    """What is appended is folded by a runner. Raises what ended it."""
    if runner == "faust":
        async with on_faust(world, work) as run:
            await _until(lambda: _ended_at(run, world.ends()))
        return
    stop = threading.Event()
    running = asyncio.create_task(asyncio.to_thread(work.loop.run, work.group, stop))
    try:
        await _until(lambda: running.done() or dict(work.loop.positions) == world.ends())
    finally:
        stop.set()
        await running


def _ended_at(run: FaustRun, ends: dict[int, int]) -> bool:
    run.raise_failure()
    return run.positions == ends


async def _until(there: Callable[[], object]) -> None:
    assert await asyncio.to_thread(wait_until, lambda: bool(there()), BOUND_S)


def ending(after: int) -> Ending:
    made = Ending()
    made.left = after
    return made


@pytest.mark.parametrize("runner", RUNNERS)
async def test_what_comes_twice_or_too_early_and_ends_in_the_middle_is_stored_once(world: World, runner: str) -> None:
    made = interleaved(some_runs(10))
    append_all(world.log, world.topic, disturbed(made))
    for after in (3, 9):  # processes that end in a batch; the next one begins anew
        others = [one for one in all_of_them() if not isinstance(one, Spend)]
        with pytest.raises(Ended):
            await followed_to_the_end(runner, world, at_work(world, [*others, ending(after)]))

    await followed_to_the_end(runner, world, at_work(world, all_of_them(), builtin=True))

    assert_all_equal_a_fresh_fold(world, all_of_them())
    assert counted(world) == len(made)
    for processor in all_of_them():
        rebuilt = await asyncio.to_thread(rebuild, world, processor)
        assert rebuilt is True, processor.name


def rebuild(world: World, processor: Processor[Any]) -> bool | None:
    return Projections(world.log, world.client, world.settings).rebuild(processor, lambda _: None).equal


def counted(world: World) -> int:
    client: Any = world.client
    keys = client.scan_iter(match=f"{world.settings.prefix}:{{*}}:activity:v1:minute:*", count=1000)
    return sum(int(number) for key in keys for number in client.hgetall(key).values())


@pytest.mark.parametrize("runner", RUNNERS)
async def test_an_event_that_raises_stops_all_or_its_trajectory_as_was_chosen(
    log_urls: Callable[[str], str], redis_db: str, fresh_prefix: str, runner: str
) -> None:
    """Given no parking it ends there and has passed nothing; with it only that trajectory stops."""
    with world_on(log_urls("kafka"), redis_db, fresh_prefix, processors={"parked_max": 0}) as world:
        append_all(world.log, world.topic, interleaved(some_runs(4)))
        with pytest.raises(InvalidProcessor, match="failed on ToolResult of run-0001"):
            await followed_to_the_end(runner, world, at_work(world, [Failing()]))
        assert known(world) < sum(world.ends().values())
    with world_on(log_urls("kafka"), redis_db, fresh_prefix) as world:
        await followed_to_the_end(runner, world, at_work(world, [Failing()]))
        [shown] = Projections(world.log, world.client, world.settings).known()
        assert list(shown.parked) == ["run-0001"]
        assert shown.behind == 0


def known(world: World) -> int:
    [shown] = Projections(world.log, world.client, world.settings).known()
    return sum(shown.positions.values())
