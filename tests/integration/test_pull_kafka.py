"""From Kafka to a file, as a person types it: what was brought is shown, checked, replayed and forked without Kafka."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tests.integration.test_cli_fork import AGENT
from tests.integration.test_cli_kafka import ONE_BROKER
from tests.support.writing import read_accepted
from tracklog.consumers.cli.app import app
from tracklog.consumers.wiring import blobs_of, opened_log, producer_of
from tracklog.infra.settings import load_settings
from tracklog.infra.topic_admin import apply
from tracklog.producers.agents import load_agent
from tracklog.producers.data import AIRLINE, shipped_file
from tracklog.producers.importers.rebuild import rebuild_record
from tracklog.producers.opening import opened
from tracklog.producers.turn import run_turns

FOUND = "airline-17-3"


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    (tmp_path / "pulled_agent.py").write_text(AGENT)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "pulled_agent:agent"
    del sys.modules["pulled_agent"]


def tracklog(*arguments: object, exit_code: int = 0) -> Result:
    result = CliRunner().invoke(app, [str(one) for one in arguments])
    assert result.exit_code == exit_code, f"{arguments}: {result.output}\n{result.exception!r}"
    return result


def test_one_of_many_runs_is_brought_from_kafka_and_needs_it_no_more(
    kafka_bootstrap: str, fresh_prefix: str, tmp_path: Path, agent: str
) -> None:
    """Given the recorded runs of the airline, and one of an agent of our own."""
    there = ("--log", f"kafka://{kafka_bootstrap}", "--prefix", fresh_prefix, "--set", "home=there", *ONE_BROKER)
    here = ("--prefix", fresh_prefix, "--set", "home=here")
    flags = {"log": f"kafka://{kafka_bootstrap}", "prefix": fresh_prefix, "home": "there"}
    flags |= {"topics.replication_factor": "1", "topics.min_insync_replicas": "1"}
    settings = load_settings(flags=flags, environ={}, cwd=tmp_path)
    loaded = load_agent(agent)

    async def record() -> None:
        with opened_log(settings) as log:
            apply(log, settings.topic_specs())
            setup = loaded.setup("a trip", blobs_of(settings))
            async with (
                producer_of(settings, log) as producer,
                opened(producer, "trip", log=log, topics=settings.topic_names, setup=setup) as session,
            ):
                await run_turns(session, loaded, "a trip")

    asyncio.run(record())
    (tmp_path / "airline.jsonl").write_bytes(shipped_file(AIRLINE))
    tracklog(*there, "import", "airline.jsonl")

    for trajectory_id in (FOUND, "trip"):
        found = json.loads(tracklog(*there, "pull", trajectory_id, "--to", "sqlite:here/log.db", "--json").stdout)
        assert found["trajectories"] == [trajectory_id]
        assert found["records_new"] > 0
    assert "nothing new" in tracklog(*there, "pull", FOUND, "--to", "sqlite:here/log.db").stdout

    assert "2 trajectories" in tracklog(*here, "verify", "--all").stdout
    assert json.loads(tracklog(*here, "show", FOUND, "--json").stdout)["state"]["status"] == "completed"
    with opened_log(load_settings(flags={"home": "here"}, environ={}, cwd=tmp_path)) as log:
        blobs = blobs_of(load_settings(flags={"home": "here"}, environ={}, cwd=tmp_path))
        record_here = rebuild_record(read_accepted(log, FOUND, prefix=fresh_prefix), blobs)
    assert record_here in [json.loads(line) for line in shipped_file(AIRLINE).splitlines()]
    assert "clean" in tracklog(*here, "replay", "trajectory", "trip", "--agent", agent).stdout
    assert "small was told" in tracklog(*here, "fork", "trip", "--turn", 2, "--agent", agent).stdout
    (fork,) = json.loads(tracklog(*here, "fork", "trip", "--turn", 2, "--agent", agent, "--json").stdout)["forks"]
    assert "are the same" in tracklog(*here, "diff", "trip", fork["trajectory_id"]).stdout
    for trajectory_id in (FOUND, fork["trajectory_id"]):
        assert json.loads(tracklog(*here, "at", trajectory_id, "--json").stdout)["context"]["as_recorded"]
    assert "nothing new" in tracklog(*there, "pull", "trip", "--to", "sqlite:here/log.db").stdout
