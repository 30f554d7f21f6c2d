"""SWE-agent's `.traj` files: both message forms, with and without the steps beside the history."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.importing import events_of_plan
from tracklog.infra.blobs import BlobStore, open_blobs
from tracklog.producers.data import shipped_file
from tracklog.producers.importers.plan import plan
from tracklog.producers.importers.rebuild import rebuild_record
from tracklog.producers.importers.run import BadRun, Outcome, Reply, Run, Spoken
from tracklog.producers.importers.traj import parse_traj
from tracklog.schemas.events import ModelReplied, TaskEnded, ToolIntent
from tracklog.schemas.values import Ending, ResultStatus, Role

SYSTEM = {"role": "system", "content": "work", "agent": "main"}
ISSUE = {"role": "user", "content": "the issue", "agent": "main"}
ACTS = {"role": "assistant", "content": "look\n```\nls\n```", "thought": "look", "action": "ls\n", "agent": "main"}
SEES = {"role": "user", "content": "a.py\nbash-$", "agent": "main"}


@pytest.fixture
def blobs(tmp_path: Any) -> BlobStore:
    return open_blobs(str(tmp_path))


def read(record: object, name: str = "some.traj") -> Run:
    run = parse_traj(json.dumps(record).encode(), name)
    assert isinstance(run, Run), str(run)
    return run


def shipped(name: str) -> Run:
    run = parse_traj(shipped_file(f"swe_agent/{name}.traj"), f"{name}.traj")
    assert isinstance(run, Run)
    return run


def outcomes(run: Run) -> list[Outcome]:
    return [step for step in run.steps if isinstance(step, Outcome)]


def test_function_calling_and_actions_in_the_text_give_the_same_calls() -> None:
    calling, acting = shipped("marshmallow_1867_function_calling"), shipped("marshmallow_1867_xml")
    tools = [[c.tool for s in run.steps if isinstance(s, Reply) for c in s.calls] for run in (calling, acting)]
    assert tools[0] == tools[1]
    assert (calling.model, calling.trajectory_id) == ("gpt-4o", "swe-marshmallow_1867_function_calling")


def test_the_next_user_message_is_what_came_back_from_an_action() -> None:
    run = read({"history": [SYSTEM, ISSUE, ACTS, SEES, ACTS, SEES]})
    assert [type(step) for step in run.steps] == [Spoken, Reply, Outcome, Reply, Outcome]
    assert [step.content.text for step in outcomes(run)] == ["a.py\nbash-$"] * 2
    assert [step.call_id for step in outcomes(run)] == ["action-1", "action-2"]
    assert run.task == "the issue"


def test_an_action_is_the_agents_own_command_or_the_shells() -> None:
    edits = {**ACTS, "action": "edit 1:1\nx\nend_of_edit"}
    run = read({"history": [ISSUE, ACTS, SEES, edits, SEES]})
    calls = [call for step in run.steps if isinstance(step, Reply) for call in step.calls]
    assert [(call.tool, call.arguments) for call in calls] == [("bash", "ls\n"), ("edit", "edit 1:1\nx\nend_of_edit")]


def test_a_reply_without_an_action_makes_no_call_and_the_next_message_is_a_user_turn() -> None:
    thinks = {**ACTS, "action": " "}
    run = read({"history": [ISSUE, thinks, {"role": "user", "content": "that was no command"}]})
    assert [type(step) for step in run.steps] == [Spoken, Reply, Spoken]


def test_demonstrations_are_said_and_nobody_made_their_calls(blobs: BlobStore) -> None:
    shown = [{**message, "is_demo": True} for message in (ISSUE, ACTS, SEES)]
    record = {"history": [SYSTEM, *shown, ISSUE, ACTS, SEES]}
    run = read(record)
    assert [type(step) for step in run.steps] == [Spoken, Spoken, Spoken, Spoken, Reply, Outcome]
    assert [step.role for step in run.steps if isinstance(step, Spoken)] == [
        Role.USER,
        Role.AGENT,
        Role.USER,
        Role.USER,
    ]
    assert rebuild_record(events_of_plan(run, blobs), blobs) == record


def test_the_last_result_and_durations_come_from_the_trajectory_beside_the_history(blobs: BlobStore) -> None:
    steps = [
        {"action": "ls\n", "observation": "a.py", "execution_time": 0.2396},
        {"action": "ls\n", "observation": "the end"},
    ]
    record = {"history": [ISSUE, ACTS, SEES, ACTS], "trajectory": steps}
    run = read(record)
    found = [(step.content.text, step.duration_ms, step.seen is None) for step in outcomes(run)]
    assert found == [("a.py\nbash-$", 240, False), ("the end", None, True)]
    assert rebuild_record(events_of_plan(run, blobs), blobs) == record


def test_without_a_trajectory_the_last_action_has_an_unknown_result(blobs: BlobStore) -> None:
    record = {"history": [ISSUE, ACTS]}
    events = events_of_plan(read(record), blobs)
    result = events[-2].body
    assert result is not None
    assert (events[-2].name, getattr(result, "status", None)) == ("ToolResult", ResultStatus.UNKNOWN)
    assert rebuild_record(events, blobs) == record


@pytest.mark.parametrize(
    ("status", "ending"),
    [
        ("submitted", Ending.COMPLETED),
        ("submitted (exit_cost)", Ending.COMPLETED),
        ("exit_cost", Ending.FAILED),
        (None, Ending.COMPLETED),
    ],
)
def test_a_run_ends_as_its_exit_status_says(status: str | None, ending: Ending) -> None:
    run = read({"history": [ISSUE], "info": {"exit_status": status, "submission": "diff"}})
    ended = plan(run)[-1].body
    assert isinstance(ended, TaskEnded)
    assert ended.ending is ending
    assert ended.reason == (status or "")
    assert ended.result is not None
    assert "diff" in ended.result.text


def test_totals_of_tokens_and_cost_are_carried_by_the_last_reply() -> None:
    replies = [p.body for p in plan(shipped("test_repo_i1")) if isinstance(p.body, ModelReplied)]
    assert [reply.cost_micro_usd for reply in replies] == [None] * 4 + [538_390]
    assert [reply.usage.input_tokens for reply in replies] == [0] * 4 + [52_861]


def test_effects_that_are_known_are_said() -> None:
    intents = [p.body for p in plan(shipped("function_calling_simple")) if isinstance(p.body, ToolIntent)]
    assert {intent.tool: intent.effect.value for intent in intents} == {
        "find_file": "readonly",
        "open": "readonly",
        "edit": "local",
        "bash": "opaque",
        "submit": "opaque",
    }


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "not JSON"),
        (b"no json", "not JSON"),
        (b"\xff\xfe", "not UTF-8"),
        (b"[]", "a run is a JSON object"),
        (b"{}", "the field 'history' is missing"),
        (b'{"trajectory": []}', "the field 'history' is missing"),
        (b'{"history": []}', "'history' holds no list of messages"),
        (b'{"history": [{"content": "x"}]}', "message 0: the field 'role' is missing"),
        (b'{"history": [{"role": "robot", "content": "x"}]}', "message 0: unknown role 'robot'"),
        (b'{"history": [{"role": "tool", "content": "x"}]}', "message 0: a tool message without 'tool_call_ids'"),
        (b'{"history": [{"role": "tool", "content": "x", "tool_call_ids": ["c"]}]}', "call 'c', which is not open"),
        (b'{"history": [{"role": "user"}]}', "message 0: the field 'content' is missing"),
    ],
)
def test_a_bad_file_is_named(data: bytes, reason: str) -> None:
    bad = parse_traj(data, "some/broken.traj")
    assert isinstance(bad, BadRun)
    assert (bad.file, bad.line) == ("some/broken.traj", 0)
    assert reason in bad.reason
    assert str(bad).startswith("some/broken.traj: ")


def test_an_over_long_file_name_is_no_trajectory_id() -> None:
    bad = parse_traj(json.dumps({"history": [ISSUE]}).encode(), "x" * 300 + ".traj")
    assert isinstance(bad, BadRun)
    assert "bytes" in bad.reason


def test_odd_side_data_does_no_harm(blobs: BlobStore) -> None:
    record = {
        "history": [ISSUE, ACTS, SEES],
        "trajectory": ["x"],
        "info": [],
        "replay_config": "text",
        "environment": None,
    }
    assert rebuild_record(events_of_plan(read(record), blobs), blobs) == record
