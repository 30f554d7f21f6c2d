"""`tracklog annotate`, as a person types it: while a trajectory waits and after its end, whoever ran it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tests.support.sessions import ScriptedModel, asks, says
from tracklog.consumers.cli.app import app
from tracklog.consumers.wiring import blobs_of, opened_log, producer_of
from tracklog.infra.settings import Settings, load_settings
from tracklog.producers.history import read_history
from tracklog.producers.opening import opened
from tracklog.producers.tools import ToolSet, tool
from tracklog.producers.turn import Agent, run_turns
from tracklog.schemas import events as ev
from tracklog.schemas.values import TargetKind

Annotate = Callable[..., Result]


@tool(effect="readonly")
def look(what: str) -> str:
    return f"saw {what}"


async def run_one(settings: Settings, name: str, *, to_the_end: bool, calls: bool = False) -> None:
    model = ScriptedModel(asks(("c1", "look"), ("c2", "look")), says("done")) if calls else ScriptedModel(says("done"))
    agent = Agent("traveller", model, ToolSet.of(look))
    with opened_log(settings, make_topics=True) as log:
        async with producer_of(settings, log) as producer:
            setup = agent.setup("a trip", blobs_of(settings))
            async with opened(producer, name, log=log, setup=setup) as session:
                if to_the_end:
                    await run_turns(session, agent, setup.task)


def judgements(settings: Settings, name: str) -> list[ev.Annotated]:
    with opened_log(settings) as log:
        events = read_history(log, settings.topic_names.events, name)[1]
    return [event.body for event, _ in events if isinstance(event.body, ev.Annotated)]


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load_settings(flags={}, environ={"TRACKLOG_HOME": str(tmp_path / "data")}, cwd=tmp_path)


@pytest.fixture
def annotate(settings: Settings) -> Annotate:
    runner = CliRunner(env={"TRACKLOG_HOME": settings.home})

    def run(*arguments: Any, exit_code: int = 0) -> Result:
        result = runner.invoke(app, ["annotate", *(str(one) for one in arguments)])
        assert result.exit_code == exit_code, f"{arguments}: {result.output}\n{result.exception!r}"
        return result

    return run


def test_what_has_ended_takes_a_judgement_at_once_and_once(settings: Settings, annotate: Annotate) -> None:
    # given a program's run that is over: nobody opens it any more
    asyncio.run(run_one(settings, "trip-1", to_the_end=True))
    # when it is judged, the same is said again, and another judge says the same
    for _ in range(2):
        assert "taken" in annotate("trip-1", "--name", "score", "--value", "0.8", "--as", "ada").output
    annotate("trip-1", "--name", "score", "--value", "0.8", "--as", "bob")
    annotate("trip-1", "--turn", 1, "--name", "comment", "--value", "well done", "--as", "ada", "--evaluator", "v2")
    # then the record has each once
    first, second, third = judgements(settings, "trip-1")
    assert (first.name, first.value.text, first.source) == ("score", "0.8", "ada")
    assert second.source == "bob"
    assert (third.target, third.turn, third.evaluator_version) == (TargetKind.TURN, 1, "v2")


def test_a_client_id_is_one_judgement_whatever_it_says_later(settings: Settings, annotate: Annotate) -> None:
    asyncio.run(run_one(settings, "trip-1", to_the_end=True, calls=True))
    for value in ("yes", "no"):
        annotate("trip-1", "--call", "c1", "--name", "correct", "--value", value, "--client-id", "r-17", "--as", "ada")
    (one,) = judgements(settings, "trip-1")
    assert (one.value.text, one.call_id, one.client_id) == ("yes", "c1", "r-17")


def test_what_goes_on_takes_it_when_it_is_opened_again(settings: Settings, annotate: Annotate) -> None:
    asyncio.run(run_one(settings, "trip-1", to_the_end=False))
    said = json.loads(annotate("trip-1", "--name", "score", "--value", "1", "--json").output)
    assert said["taken"] is False
    assert judgements(settings, "trip-1") == []
    asyncio.run(run_one(settings, "trip-1", to_the_end=True))
    assert [one.name for one in judgements(settings, "trip-1")] == ["score"]


def test_what_cannot_be_judged_is_said(settings: Settings, annotate: Annotate) -> None:
    asyncio.run(run_one(settings, "trip-1", to_the_end=True))
    assert "no trajectory 'nowhere'" in annotate("nowhere", "--name", "a", "--value", "b", exit_code=2).output
    late = annotate("trip-1", "--turn", 9, "--name", "a", "--value", "b", exit_code=2).output
    assert "has come to turn 1, not 9" in late
    both = annotate("trip-1", "--turn", 1, "--call", "c", "--name", "a", "--value", "b", exit_code=2).output
    assert "--turn or --call" in both
    none = annotate("trip-1", "--call", "c1", "--name", "a", "--value", "b", exit_code=2).output
    assert "has no call 'c1'" in none
    assert "it has no calls" in none
    assert judgements(settings, "trip-1") == []


def test_a_call_that_is_not_there_is_not_judged_and_those_there_are_are_named(
    settings: Settings, annotate: Annotate
) -> None:
    asyncio.run(run_one(settings, "trip-1", to_the_end=True, calls=True))
    refused = annotate("trip-1", "--call", "c3", "--name", "correct", "--value", "no", exit_code=2).output
    assert "has no call 'c3'" in refused
    assert "it has c1, c2" in refused
    assert judgements(settings, "trip-1") == []
