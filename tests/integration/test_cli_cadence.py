"""`tracklog cadence`: how often checkpoints are taken, from measured pauses, and what that costs."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.support.sessions import ScriptedModel
from tracklog.consumers.cadence_report import cadence_report
from tracklog.consumers.cli.app import app
from tracklog.consumers.wiring import blobs_of, opened_log, producer_of
from tracklog.infra.settings import Settings, load_settings
from tracklog.producers.opening import opened
from tracklog.producers.session import Session
from tracklog.producers.setup import Setup
from tracklog.producers.turn import run_memory

DAY_S = 86_400


async def record(settings: Settings) -> None:
    """A run of 120 short turns, so with checkpoints after 50 and 100."""

    async def turn(session: Session, memory: int) -> int:
        await session.build_context([{"role": "user", "content": f"turn {memory}"}])
        if memory == 119:
            await session.end("done")
        return memory + 1

    with opened_log(settings, make_topics=True) as log:
        async with producer_of(settings, log) as producer:
            setup = Setup("counter", "count", blobs_of(settings), model=ScriptedModel(), failures_a_day=0.0)
            async with opened(producer, "run-1", log=log, setup=setup, from_checkpoint=True) as session:
                await run_memory(session, turn, 0)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("cadence") / "data"
    asyncio.run(record(load_settings(flags={}, environ={"TRACKLOG_HOME": str(home)}, cwd=home.parent)))
    return home


def test_the_pauses_of_the_log_and_the_rate_that_is_set_give_the_interval(home: Path) -> None:
    runner = CliRunner(env={"TRACKLOG_HOME": str(home), "TRACKLOG_CHECKPOINTS__FAILURES_A_DAY": "24"})
    told = json.loads(runner.invoke(app, ["cadence", "--json"]).output)

    assert told["checkpoints"] == 2
    assert 0 < told["pause_s"] <= told["pause_longest_s"] < 10
    assert told["failures_a_day"] == 24
    assert told["interval_s"] == pytest.approx((2 * told["pause_s"] * 3600) ** 0.5, rel=0.1)
    text = runner.invoke(app, ["cadence", "run-1", "--failures-a-day", "0"]).output
    assert "median of 2 checkpoints" in text
    assert "none by time; one every 50 turns" in text
    absent = runner.invoke(app, ["cadence", "another"])
    assert absent.exit_code == 2
    assert "there is no trajectory 'another'" in absent.output


@pytest.mark.parametrize("rate", ["nan", "inf", "-1"])
def test_a_rate_that_is_none_is_refused(home: Path, rate: str) -> None:
    result = CliRunner(env={"TRACKLOG_HOME": str(home)}).invoke(app, ["cadence", "--failures-a-day", rate])
    assert result.exit_code == 2


def test_what_it_costs_is_what_is_spent_and_what_is_lost() -> None:
    """Given a pause of 1 s and a failure a day, then both shares are as large, as Young's rule balances them."""
    report = cadence_report([1.0], 1.0)
    assert report.interval_s == pytest.approx((2 * DAY_S) ** 0.5, rel=0.01)
    assert report.share_checkpoints == pytest.approx(report.share_again, rel=0.02)
    assert cadence_report([], 0.0)[4:] == (None, 0.0, 0.0)
