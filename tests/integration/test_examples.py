"""Agents of four frameworks, made durable with a few lines: killed with kill -9, they go on and book once."""

from __future__ import annotations

import difflib
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.example_runs import (
    FRAMEWORKS,
    check_booked_once,
    example_processes,
    lives_until_done,
    numbered,
    run_of,
    seen,
)
from tests.support.zygote import ROOT, Zygote

LINES_MAX = 15


@pytest.fixture(scope="module")
def processes() -> Iterator[Zygote]:
    with example_processes() as made:
        yield made


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_an_agent_becomes_durable_by_at_most_15_lines(name: str) -> None:
    before, after = ((ROOT / "examples" / name / f"{form}.py").read_text() for form in ("before", "durable"))

    lines = list(difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=0))[2:]

    assert 0 < len([line for line in lines if line[0] in "+-"]) <= LINES_MAX, "\n".join(lines)


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_an_agent_killed_after_a_reply_during_and_after_its_tools_books_once(
    name: str, processes: Zygote, tmp_path: Path
) -> None:
    moments = ("the model has given reply 1", "TL100 is asked for", "TL300 is done", "TL300 is answered")
    with run_of(name, processes, tmp_path) as run:
        killed = lives_until_done(run, [seen(words) for words in moments])
        assert killed == len(moments)
        check_booked_once(run)
        assert run.life(), "of one that has ended the record answers"
        assert run.on.seen == []


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_an_agent_killed_at_random_moments_books_once(name: str, processes: Zygote, tmp_path: Path) -> None:
    drawn = random.Random(f"{name} killed")
    with run_of(name, processes, tmp_path) as run:
        assert lives_until_done(run, [numbered(drawn.randint(1, 6)) for _ in range(2)]) == 2
        check_booked_once(run)


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_the_agent_before_it_was_durable_is_an_agent(name: str, processes: Zygote, tmp_path: Path) -> None:
    with run_of(name, processes, tmp_path) as run:
        assert run.life(form="before")
        check_booked_once(run)


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_a_tool_without_a_session_runs_in_no_framework(name: str, processes: Zygote, tmp_path: Path) -> None:
    with run_of(name, processes, tmp_path) as run:
        assert run.without_session().partition(":")[0].endswith("Error")
        assert run.on.desk.asked == {}
