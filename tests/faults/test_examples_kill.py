"""The examples, killed with kill -9 at every moment that others see, and at random times between these."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.example_runs import FRAMEWORKS, check_booked_once, example_processes, numbered, run_of
from tests.support.zygote import Zygote

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
