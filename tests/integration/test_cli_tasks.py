"""`cancel`, `retry` and `send`, as a person types them: what cannot be asked is said, one by one and of many."""

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
from tracklog.producers.opening import opened
from tracklog.producers.policy_file import PolicyFile
from tracklog.producers.setup import Setup
from tracklog.producers.tools import ToolSet, tool
from tracklog.producers.turn import Agent, run_turns
from tracklog.schemas.errors import ApprovalNeeded
from tracklog.schemas.lifecycle import Parked
from tracklog.schemas.values import Driver

Tracklog = Callable[..., Result]


SETTLE = ("escalations", "settle", "held", "c1", "--as", "ada", "--reason", "their list")
POLICY = PolicyFile(b'default = "hold"', "policy.toml")


@tool(effect="opaque")
def book(what: str) -> str:
    return f"booked {what}"


async def record(settings: Settings) -> None:
    """`ended` has ended, `failed` was stopped, `held` waits for a decision, `unbegun` was stopped before its task was
    recorded, all of workers; `theirs` is a library's."""
    with opened_log(settings, make_topics=True) as log:
        async with producer_of(settings, log) as producer:
            for name in ("ended", "failed", "held", "theirs"):
                model = ScriptedModel(asks(("c1", "book")) if name == "held" else says("done"))
                agent = Agent("traveller", model, ToolSet.of(book), POLICY)
                driver = Driver.LIBRARY if name == "theirs" else Driver.WORKER
                setup = agent.setup("a trip", blobs_of(settings), driver=driver)
                try:
                    await run_to(name, opened(producer, name, log=log, setup=setup), agent, setup)
                except (ConnectionError, ApprovalNeeded):
                    continue
            writer = await producer.claim("unbegun", owner="worker-1", driver=Driver.WORKER)
            await writer.release("the task is lost", parked=Parked.FAILED)


async def run_to(name: str, opened: Any, agent: Agent, setup: Setup) -> None:
    async with opened as session:
        if name == "failed":
            await session.build_context([{"role": "user", "content": setup.task}])
        if name in ("failed", "theirs"):
            raise ConnectionError("nobody answers")
        await run_turns(session, agent, setup.task)


@pytest.fixture(scope="module")
def tracklog(tmp_path_factory: pytest.TempPathFactory) -> Tracklog:
    home = tmp_path_factory.mktemp("tasks")
    environ = {"TRACKLOG_HOME": str(home / "data")}
    asyncio.run(record(load_settings(flags={}, environ=environ, cwd=home)))
    runner = CliRunner(env=environ)

    def run(*arguments: object, exit_code: int = 0) -> Result:
        result = runner.invoke(app, [str(one) for one in arguments])
        assert result.exit_code == exit_code, f"{arguments}: {result.output}\n{result.exception!r}"
        return result

    run("submit", "traveller", "a trip", "--id", "waiting")
    return run


def test_what_was_stopped_is_listed_and_shown_with_its_way_out(tracklog: Tracklog) -> None:
    assert "failed: remove the reason, then `tracklog retry ID`" in tracklog("list").stdout
    shown = tracklog("show", "failed").stdout
    assert "stopped: failed: " in shown
    assert "way out: remove the reason, then `tracklog retry failed`" in shown
    assert "open its session again" in tracklog("show", "theirs").stdout


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        (("cancel", "absent"), 1, "there is no trajectory 'absent'"),
        (("cancel", "ended"), 1, "has ended: completed"),
        (("retry", "absent"), 1, "there is no trajectory 'absent'"),
        (("retry", "ended"), 1, "has ended: completed"),
        (("retry", "waiting"), 1, "was not stopped: it is submitted, and no worker has begun with it"),
        (("retry", "theirs"), 1, "is run by the driver 'library'"),
        (("retry", "held"), 1, "was not stopped: it is parked: approval"),
        (("retry", "failed", "--turn", "3"), 1, "turns of this trajectory are 1 to 1"),
        (("retry", "ended", "--turn", "1"), 1, "has ended: completed"),
        (
            ("approvals", "approve", "held", "c1", "--as", "ada", "--edit", "absent.json"),
            2,
            "cannot be read from absent",
        ),
        (("approvals", "approve", "held", "c1", "--as", "ada", "--edit", "x", "--answer", "y"), 2, "one decision at a"),
        (("approvals", "deny", "held", "c9", "--as", "ada"), 2, "is not open; it waits for no decision"),
        (("submit", "traveller", "another trip", "--id", "ended"), 2, "was given another task"),
        (("submit", "traveller", "another trip", "--id", "waiting"), 2, "give this one another id"),
        (("submit", "traveller", "a trip", "--id", "theirs"), 2, "is there already"),
        (("refused", "absent"), 2, "there is no trajectory 'absent'"),
        (("refused", "held", "--call", "c9"), 2, "has no call 'c9' hint: it has c1"),
        (("list", "--status", "runing"), 2, "there is no status 'runing' hint: it is one of new, claimed, running"),
        (("cadence", "absent"), 2, "there is no trajectory 'absent'"),
        ((*SETTLE, "--happened", "--did-not-happen"), 2, "is said of the call: it happened, it did not happen"),
        (SETTLE, 2, "it is not said what became of the call"),
        (("send", "absent", "hello"), 2, "there is no trajectory 'absent'"),
        (("send", "ended", "hello"), 5, "has ended: completed"),
    ],
)
def test_what_cannot_be_asked_is_said_and_no_success(
    tracklog: Tracklog, line: tuple[str, ...], code: int, said: str
) -> None:
    assert said in " ".join(tracklog(*line, exit_code=code).stderr.split())


def test_the_same_task_under_its_id_is_the_same_before_and_after_it_has_begun(tracklog: Tracklog) -> None:
    for _ in range(2):
        assert tracklog("submit", "traveller", "a trip", "--id", "waiting").stdout == "waiting\n"
    assert tracklog("refused", "waiting").stdout == "nothing was refused\n"


def test_of_many_those_that_can_be_asked_are_and_the_others_named(tracklog: Tracklog) -> None:
    line = ("retry", "failed", "ended", "absent", "--json")
    for dry_run in (("--dry-run",), ()):
        told = json.loads(tracklog(*line, *dry_run, exit_code=1).stdout)
        assert (told["trajectories"], sorted(told["failed"])) == (["failed"], ["absent", "ended"])


def test_a_filter_finds_only_what_can_be_asked(tracklog: Tracklog) -> None:
    """The one that was only submitted has no event yet, so no view has it."""
    line = ("--where", 'agent == "traveller"', "--dry-run", "--json")
    found = {"retry": ["failed"], "retry --turn 1": ["failed"], "cancel": ["failed", "held"]}
    for command, expected in found.items():
        told = json.loads(tracklog(*command.split(), *line).stdout)
        assert (sorted(told["trajectories"]), told["failed"]) == (expected, {})


def test_a_filter_finds_what_was_stopped_before_its_task_was_recorded(tracklog: Tracklog) -> None:
    line = ("--where", 'parked == "failed"', "--dry-run", "--json")
    for command in ("retry", "cancel"):
        told = json.loads(tracklog(command, *line).stdout)
        assert (sorted(told["trajectories"]), told["failed"]) == (["failed", "unbegun"], {})


def test_the_result_of_what_was_stopped_before_its_task_was_recorded_says_why(tracklog: Tracklog) -> None:
    assert "is parked: failed (the task is lost)" in tracklog("result", "unbegun", exit_code=4).stderr


def test_another_trajectory_is_named_that_goes_on_from_a_turn(tracklog: Tracklog) -> None:
    told = json.loads(tracklog("retry", "failed", "--turn", 1, "--json").stdout)
    again = tracklog("retry", "failed", "--turn", 1, "--reason", "asked again").stdout
    new = told["became"]["failed"]
    assert (told["trajectories"], new.startswith("failed.turn-1-")) == (["failed"], True)
    assert f"asked to go back to turn 1 of failed: goes on as {new}" in again


def test_a_held_call_is_edited_from_the_command_line(tracklog: Tracklog, tmp_path: Path) -> None:
    edit = tmp_path / "arguments.json"
    line = ("approvals", "approve", "held", "c1", "--as", "ada", "--edit", str(edit))
    edit.write_text("[]")
    assert "no JSON object" in tracklog(*line, exit_code=2).stderr
    edit.write_text('{"whom":3}')
    assert "tool 'book' does not take these arguments" in tracklog(*line, exit_code=2).stderr
    edit.write_text('{"what":"less"}')
    assert "call c1: edit, by ada" in tracklog(*line).stdout


def test_what_was_only_submitted_can_be_told_things_and_cancelled(tracklog: Tracklog) -> None:
    assert "sent to waiting" in tracklog("send", "waiting", "hello").stdout
    assert "asked to cancel waiting" in tracklog("cancel", "waiting").stdout


def test_a_swarm_that_is_not_there_is_said_once(tracklog: Tracklog) -> None:
    said = tracklog("swarm", "absent", exit_code=2).stderr
    assert said.count("no swarm 'absent'") == 1
