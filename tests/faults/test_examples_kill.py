"""The examples, killed with kill -9 at every moment that others see, and at random times between these."""

from __future__ import annotations

import importlib
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from openai import AsyncOpenAI

from tests.support.example_runs import FRAMEWORKS, TASK, check_booked_once, example_processes, numbered, run_of
from tests.support.writing import read_accepted
from tests.support.zygote import Zygote
from tracklog.infra.blobs import open_blobs
from tracklog.infra.log.open import open_log
from tracklog.producers import Session, Setup, ToolSet
from tracklog.producers.replay import replay

pytestmark = pytest.mark.faults
SEEDS = 5
DELAY_S_MAX = 0.1
STARTS_MAX = 40


@pytest.fixture(scope="module")
def processes() -> Iterator[Zygote]:
    with example_processes() as made:
        yield made


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", FRAMEWORKS)
def test_an_agent_killed_at_any_moment_goes_on_and_books_once(name: str, processes: Zygote, tmp_path: Path) -> None:
    moments = 0
    while True:
        moments += 1
        home = tmp_path / str(moments)
        home.mkdir()
        with run_of(name, processes, home) as run:
            if run.life(numbered(moments)):
                break
            assert run.life()
            check_booked_once(run)
    assert moments > 16, "four replies and three bookings"


@pytest.mark.parametrize("name", FRAMEWORKS)
async def test_a_recorded_run_replays_clean(name: str, processes: Zygote, tmp_path: Path) -> None:
    example = importlib.import_module(f"examples.{name}.durable")
    with run_of(name, processes, tmp_path) as run:
        assert run.life()
        asked = len(run.on.endpoint.bodies)

    async def program(session: Session) -> None:
        client = session.wrap(AsyncOpenAI(base_url="http://127.0.0.1:9", api_key="none"))
        tools = (session.bind(example.find_flights), session.bind(example.book))
        await session.end(await example.travel(client, tools, TASK))

    log = open_log(f"sqlite:{tmp_path / 'log.db'}")
    events = read_accepted(log, "trip-1")
    log.close()
    tools = ToolSet.of(example.find_flights, example.book)
    setup = Setup("traveller", TASK, tools=tools, blobs=open_blobs(str(tmp_path / "blobs")))
    report = await replay(events, program, setup=setup)

    assert report.divergence is None
    assert (report.turns, report.ended) == (4, True)
    assert len(run.on.endpoint.bodies) == asked


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("name", FRAMEWORKS)
def test_an_agent_killed_again_and_again_at_random_times_books_once(
    name: str, seed: int, processes: Zygote, tmp_path: Path
) -> None:
    drawn = random.Random(f"{name} {seed}")
    with run_of(name, processes, tmp_path) as run:
        for _ in range(STARTS_MAX):
            if run.life(numbered(drawn.randint(1, 3)), after_s=drawn.uniform(0.001, DELAY_S_MAX)):
                break
        else:
            assert run.life()
        check_booked_once(run)
