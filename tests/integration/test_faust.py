"""The Faust runner on Apache Kafka: the same content as a fresh fold, whatever Faust has committed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager

import pytest

from tests.integration.test_processors import all_of_them, assert_all_equal_a_fresh_fold, at_work
from tests.support.projecting import World, append_runs, world_on
from tracklog.infra.settings_sections import Settings
from tracklog.processors.faust_runner import FaustRun, brokers_of, run_on_faust
from tracklog.processors.running import Processes
from tracklog.schemas.errors import SettingsError, StoreError

BOUND_S = 90.0


@pytest.fixture
def world(log_urls: Callable[[str], str], redis_db: str, fresh_prefix: str) -> Iterator[World]:
    with world_on(log_urls("kafka"), redis_db, fresh_prefix) as made:
        yield made


def filled_again(world: World) -> bool:
    try:
        return world.positions() == world.ends()
    except StoreError:  # nothing is there yet
        return False


@asynccontextmanager
async def on_faust(world: World, work: Processes) -> AsyncIterator[FaustRun]:
    run, stop = FaustRun(work, world.log, world.settings), asyncio.Event()
    running = asyncio.create_task(run_on_faust(run, stop))
    try:
        yield run
    finally:
        stop.set()
        await running


async def caught_up(world: World, run: FaustRun) -> None:
    async with asyncio.timeout(BOUND_S):
        while run.positions != await asyncio.to_thread(world.ends):
            run.raise_failure()
            await asyncio.sleep(0.1)


async def test_on_faust_all_processors_equal_a_fresh_fold_also_after_a_wipe_and_another_app(world: World) -> None:
    append_runs(world, 10)
    async with on_faust(world, at_work(world, all_of_them(), builtin=True)) as run:
        await caught_up(world, run)
        append_runs(world, 5, first=10)
        await caught_up(world, run)
        await asyncio.to_thread(world.client.flushdb)
        append_runs(world, 5, first=15)
        async with asyncio.timeout(BOUND_S):
            while not await asyncio.to_thread(filled_again, world):
                run.raise_failure()
                await asyncio.sleep(0.1)
    assert_all_equal_a_fresh_fold(world, all_of_them())

    await asyncio.to_thread(world.client.flushdb)  # what Faust has committed is no place to go on from
    async with on_faust(world, at_work(world, all_of_them(), builtin=True)) as run:
        await caught_up(world, run)
    assert_all_equal_a_fresh_fold(world, all_of_them())


def test_where_faust_cannot_read_it_says_so() -> None:
    secured = Settings.model_validate({"kafka": {"options": {"security.protocol": "SASL_SSL"}}})
    for url, settings, said in (
        ("sqlite:log.db", Settings(), "reads from Kafka"),
        ("kafka://127.0.0.1:9092", secured, r"security\.protocol"),
    ):
        with pytest.raises(SettingsError, match=said):
            brokers_of(url, settings)
    assert brokers_of("kafka://a:1,b:2", Settings()) == "kafka://a:1;kafka://b:2"
