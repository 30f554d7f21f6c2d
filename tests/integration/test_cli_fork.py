"""`tracklog fork`, as a person types it."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tracklog.consumers.cli.app import app
from tracklog.consumers.wiring import blobs_of, opened_log, producer_of
from tracklog.infra.cold.joined import JoinedLog
from tracklog.infra.log.partitioner import partition_of
from tracklog.infra.settings import load_settings
from tracklog.producers.agents import load_agent
from tracklog.producers.opening import opened
from tracklog.producers.setup import Setup
from tracklog.producers.turn import run_turns
from tracklog.schemas.topics import Topics

Tracklog = Callable[..., Result]

AGENT = """
from tracklog.producers.models import ModelAnswer, calls_of
from tracklog.producers.tools import ToolSet, tool
from tracklog.producers.turn import Agent

MADE = []


@tool
def book(what: str) -> str:
    MADE.append(what)
    return f"booked {what}"


class Model:
    def __init__(self, name="small"):
        self.name = name

    def named(self, name):
        return Model(name)

    async def reply(self, request, *, on_token=None):
        if request.replies_before == 0:
            function = {"name": "book", "arguments": '{"what":"train"}'}
            message = {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "function": function}]}
        else:
            text = f"{self.name} was told: {request.messages[0]['content']}"
            message = {"role": "assistant", "content": text}
        return ModelAnswer(message=message, tool_calls=calls_of(message))


agent = Agent("traveller", Model(), ToolSet.of(book), prompt="be kind")
"""


@pytest.fixture
def tracklog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tracklog]:
    """One run of the agent is recorded."""
    (tmp_path / "forked_agent.py").write_text(AGENT)
    (tmp_path / "brief.txt").write_text("be brief")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    environ = {"TRACKLOG_HOME": str(tmp_path / "data")}
    settings = load_settings(flags={}, environ=environ, cwd=tmp_path)
    agent = load_agent("forked_agent:agent")

    async def record() -> None:
        blobs = blobs_of(settings)
        setup = Setup("traveller", "a trip", blobs, model=agent.model, tools=agent.tools, prompt=agent.prompt)
        with opened_log(settings, make_topics=True) as log:
            async with producer_of(settings, log) as producer, opened(producer, "trip", log=log, setup=setup) as one:
                await run_turns(one, agent, "a trip")

    asyncio.run(record())
    runner = CliRunner(env=environ)

    def run(*arguments: object, exit_code: int = 0, command: str = "fork") -> Result:
        result = runner.invoke(app, [command, *(str(one) for one in arguments)])
        assert result.exit_code == exit_code, f"{arguments}: {result.output}\n{result.exception!r}"
        return result

    yield run
    del sys.modules["forked_agent"]


def forks(result: Result) -> list[dict[str, str]]:
    found: list[dict[str, str]] = json.loads(result.stdout)["forks"]
    return found


def made() -> list[str]:
    calls: list[str] = sys.modules["forked_agent"].MADE
    return calls


def test_a_run_is_forked_with_another_prompt_and_model(tracklog: Tracklog) -> None:
    """Given the same call twice, the second goes on with the fork of the first, which has ended."""
    line = ("trip", "--turn", 2, "--agent", "forked_agent:agent", "--set", "prompt=brief.txt", "--set", "model=big")
    (first,) = forks(tracklog(*line, "--json"))
    (second,) = forks(tracklog(*line, "--json", "--drift", "refuse"))
    assert first == second
    assert (first["origin"], first["result"], first["error"]) == ("trip", "big was told: be brief", "")
    assert made() == ["train"]


def test_tools_are_sandboxed_unless_allowed(tracklog: Tracklog) -> None:
    line = ("trip", "--turn", 1, "--agent", "forked_agent:agent")
    tracklog(*line)
    assert made() == ["train"]
    tracklog(*line, "--allow", "book", "--id", "trip-live")
    assert made() == ["train", "train"]
    tracklog("trip-live", command="verify")
    assert "completed" in tracklog("trip-live", command="show").stdout


def test_a_reply_is_taken_from_a_file(tracklog: Tracklog, tmp_path: Path) -> None:
    (tmp_path / "no.txt").write_text("No.")
    result = tracklog("trip", "--agent", "forked_agent:agent", "--set", "reply=no.txt")
    assert result.stdout.rstrip().endswith(": No.")


def test_a_policy_is_taken_from_a_file_and_recorded(tracklog: Tracklog, tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text('default = "deny"\n')
    line = ("trip", "--agent", "forked_agent:agent", "--allow", "book", "--id", "strict")
    tracklog(*line, "--set", "policy=policy.toml")
    assert made() == ["train"]
    (tmp_path / "policy.toml").write_text('default = "allow"\n')
    assert "began otherwise: policy" in tracklog(*line, "--set", "policy=policy.toml", exit_code=1).stderr
    tracklog("trajectory", "strict", "--agent", "forked_agent:agent", command="replay")


def test_all_that_a_condition_fits_are_forked_or_only_named(tracklog: Tracklog) -> None:
    line = ("--where", 'agent == "traveller"', "--turn", 2, "--agent", "forked_agent:agent", "--json")
    named = forks(tracklog(*line, "--dry-run"))
    assert [one["origin"] for one in named] == ["trip"]
    assert [(one["trajectory_id"], one["origin"]) for one in forks(tracklog(*line))] == [
        (one["trajectory_id"], one["origin"]) for one in named
    ]


def test_a_dry_run_says_what_could_not_be_forked(tracklog: Tracklog) -> None:
    line = ("--where", 'agent == "traveller"', "--agent", "forked_agent:agent", "--dry-run", "--turn")
    assert "turns of this trajectory are 1 to 2" in tracklog(*line, 9, exit_code=1).stderr
    assert "trip -> trip.fork-2" in tracklog(*line, 2).stdout


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        (("trip", "--turn", 9, "--agent", "forked_agent:agent"), 2, "turns of this trajectory are 1 to 2"),
        (("trip", "--turn", 9, "--agent", "forked_agent:agent", "--dry-run"), 2, "turns of this trajectory are 1 to 2"),
        (("trip", "--agent", "forked_agent:nobody"), 2, "nobody"),
        (("trip", "--agent", "forked_agent:agent", "--set", "prompt=absent.txt"), 2, "cannot be read"),
        (("--agent", "forked_agent:agent"), 2, "takes an ID or --where"),
        (("other", "--agent", "forked_agent:agent"), 2, "no trajectory 'other'"),
    ],
)
def test_what_cannot_be_forked_is_said(tracklog: Tracklog, line: tuple[object, ...], code: int, said: str) -> None:
    result = tracklog(*line, exit_code=code)
    assert (said in " ".join(result.stderr.split()), result.stdout) == (True, "")


def test_what_was_trimmed_after_its_forks_ended_is_still_shown_and_forked_from_the_cold_tier(
    tracklog: Tracklog, tmp_path: Path
) -> None:
    def trimmed_to() -> list[int]:
        with opened_log(load_settings(environ={"TRACKLOG_HOME": str(tmp_path / "data")}, cwd=tmp_path)) as log:
            assert isinstance(log, JoinedLog)
            topic = Topics().events
            return [log.hot.bounds(topic, one).first for one in range(log.partition_count(topic))]

    # given a run and a fork of it, both over, of which the log has let go
    ask = ("trip", "--turn", 2, "--agent", "forked_agent:agent", "--json")
    (fork,) = forks(tracklog(*ask, "--set", "prompt=brief.txt"))
    looks = [("show", "trip"), ("show", fork["trajectory_id"]), ("at", fork["trajectory_id"], "--turn", "2")]
    before = [tracklog(*words, "--json", command=command).stdout for command, *words in looks]
    tracklog("--once", command="export")
    assert sum(trimmed_to()) == 0
    tracklog("apply", "--keep-days", 0, "--yes", command="retention")
    with_origin = partition_of(b"trip", len(trimmed_to()))
    assert trimmed_to()[with_origin] > 0, "an ended fork pins nothing"
    # when they are looked at, and forked again
    assert [tracklog(*words, "--json", command=command).stdout for command, *words in looks] == before
    (again,) = forks(tracklog(*ask, "--set", "model=large"))
    # then all of it is there: what was given is given again, and nothing is done twice
    assert again["result"] == "large was told: be kind"
    assert made() == ["train"]
    of_fork = forks(tracklog(fork["trajectory_id"], *ask[1:], "--set", "model=tiny"))
    assert of_fork[0]["error"] == ""
    tracklog("--all", command="verify")
