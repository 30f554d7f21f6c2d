"""Rows to train on: exactly what the models saw, of whole runs and single calls, without secrets."""

from __future__ import annotations

import json
import shutil
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from typer.testing import CliRunner, Result

from tests.support.cold import export_to
from tests.support.importing import chat_line, chat_record, recorded_objects
from tracklog.consumers.cli.app import app
from tracklog.consumers.importing import import_into
from tracklog.consumers.training.rows import split_of
from tracklog.consumers.wiring import opened_log
from tracklog.infra.settings import Settings, load_settings
from tracklog.producers.data import shipped_runs
from tracklog.producers.importers.chat import parse_chat_jsonl
from tracklog.producers.importers.run import Run

RUNS = 6
SEEDED = {
    "AWS key": "AKIAABCDEFGHIJKLMNOP",
    "API key": "sk-abcdefghijklmnopqrstuvwx",
    "GitHub token": "ghp_" + "a1" * 18,
    "bearer token": "Bearer abcdefghijklmnop.qrstuvwxyz",
    "password": "postgres://ada:hunter2@",
    "private key": "-----BEGIN RSA PRIVATE KEY-----\nMIIB\n-----END RSA PRIVATE KEY-----",
}


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Recorded airline runs, and one that says secrets."""
    home = tmp_path_factory.mktemp("training")
    settings = load_settings(flags={"home": str(home)}, environ={}, cwd=home)
    text = "; ".join(SEEDED.values())
    call = {"id": "c9", "type": "function", "function": {"name": "find", "arguments": '{"email": "ada@example.org"}'}}
    record = chat_record(id="leaky", reward=1.0, labels={"reward": "1"})
    record["messages"] += [
        {"role": "assistant", "content": text, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c9", "content": text},
        {"role": "assistant", "content": "done"},
    ]
    with opened_log(settings, make_topics=True) as log:
        shipped = islice((one for one in shipped_runs() if isinstance(one, Run)), RUNS)
        import_into(log, settings, [*shipped, *parse_chat_jsonl([chat_line(record)], "leaky.jsonl")])
        export_to(log, settings)
    return settings


def cold(settings: Settings, *words: str, exit_code: int = 0) -> Result:
    result = CliRunner(env={"TRACKLOG_HOME": settings.home}).invoke(app, ["cold", *words])
    assert result.exit_code == exit_code, f"{words}: {result.output}\n{result.exception!r}"
    return result


def lines(result: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def airline(number: int) -> Run:
    return next(islice((one for one in shipped_runs() if isinstance(one, Run)), number, None))


def test_each_finished_trajectory_is_one_row(settings: Settings) -> None:
    rows = lines(cold(settings, "trajectories"))

    assert len(rows) == RUNS + 1
    by_id = {row["trajectory_id"]: row for row in rows}
    one = by_id["airline-0-1"]
    assert (one["kind"], one["agent"] != "", one["verified"], one["outcome"]) == ("import", True, True, "completed")
    assert one["reward"] in (0.0, 1.0)
    assert one["turns"] == sum(stretch["replies"] for stretch in one["models"])
    chosen = lines(cold(settings, "trajectories", "--where", "reward == 1.0 && turns > 2"))
    assert {row["trajectory_id"] for row in chosen} == {
        name for name, row in by_id.items() if row["reward"] == 1.0 and row["turns"] > 2
    }
    assert "no field" in cold(settings, "trajectories", "--where", "nothing == 1", exit_code=2).stderr


def test_a_call_is_what_the_recording_says_the_model_saw_and_said(settings: Settings) -> None:
    run = airline(1)
    rows = [row for row in lines(cold(settings, "training")) if row["provenance"]["trajectory_id"] == run.trajectory_id]

    messages = recorded_messages(1)
    replies = [at for at, message in enumerate(messages) if message["role"] == "assistant"]
    assert len(rows) == len(replies)
    for row, at in zip(rows, replies, strict=True):
        assert [seen(one) for one in row["messages"]] == [seen(one) for one in messages[: at + 1]]
        assert len(row["provenance"]["context_hash"]) == 64


def seen(message: dict[str, Any]) -> tuple[Any, ...]:
    return message["role"], message.get("content"), json.dumps(message.get("tool_calls") or None, sort_keys=True)


def recorded_messages(number: int) -> list[dict[str, Any]]:
    """As the file has them, read without the importers."""
    return [dict(one) for one in recorded_objects()[number]["messages"]]


def test_a_trajectory_is_its_last_context_and_reply_in_the_form_of_hugging_face(settings: Settings) -> None:
    rows = lines(cold(settings, "training", "--unit", "trajectory", "--format", "hf"))

    assert len(rows) == RUNS + 1
    for row in rows:
        assert row["completion"][0]["role"] == "assistant"
        calls = [call for message in row["prompt"] for call in message.get("tool_calls") or ()]
        assert all(isinstance(call["function"]["arguments"], dict) for call in calls)


def test_seeded_secrets_are_in_no_row_and_counted(settings: Settings) -> None:
    result = cold(settings, "training", "--redact-field", "email")
    leaky = [row for row in lines(result) if row["provenance"]["trajectory_id"].endswith("leaky")]

    assert leaky
    text = json.dumps(leaky)
    for what, secret in SEEDED.items():
        assert json.dumps(secret)[1:-1] not in text
        assert f"times {what}" in result.stderr
    assert "ada@example.org" not in text
    kept = json.dumps(lines(cold(settings, "training", "--keep-secrets")))
    assert SEEDED["AWS key"] in kept


def test_tasks_are_split_the_same_way_each_time(settings: Settings) -> None:
    rows = lines(cold(settings, "training", "--valid", "0.3", "--test", "0.3"))
    parts: dict[str, set[str]] = {}
    for row in rows:
        parts.setdefault(row["provenance"]["task"], set()).add(row["provenance"]["split"])
    assert all(len(split) == 1 for split in parts.values())
    assert {split_of(f"task-{n}", 0.2, 0.2) for n in range(100)} == {"train", "valid", "test"}
    assert {split_of(f"task-{n}", 0.0, 0.0) for n in range(100)} == {"train"}
    cold(settings, "training", "--valid", "0.6", "--test", "0.6", exit_code=2)


def test_a_run_with_a_fault_gives_nothing_to_train_on(settings: Settings, tmp_path: Path) -> None:
    shutil.copytree(settings.home, tmp_path / "home")
    there = load_settings(flags={"home": str(tmp_path / "home")}, environ={}, cwd=tmp_path)
    table = DeltaTable(f"{there.cold.url}/events")
    table.update(updates={"payload": "x'00'"}, predicate="trajectory_id = 'airline-0-1' AND seq = 5")

    result = cold(there, "training")

    assert "airline-0-1" not in result.stdout
    assert "left out: 1 times a trajectory that verify finds fault with" in result.stderr


@pytest.mark.parametrize("event", ["seq = 5", "event_type = 'TaskEnded'"])
def test_a_run_that_somebody_altered_is_a_row_that_is_not_verified(
    settings: Settings, tmp_path: Path, event: str
) -> None:
    there = with_a_byte_changed(settings, tmp_path, f"trajectory_id = 'airline-0-1' AND {event}")

    every, doubted = cold(there, "trajectories"), cold(there, "trajectories", "--where", "!verified")

    assert len(lines(every)) == RUNS + 1
    (row,) = lines(doubted)
    assert (row["trajectory_id"], row["outcome"], row["task"] != "") == ("airline-0-1", "unknown", True)
    assert row["faults"]
    completed = cold(there, "trajectories", "--where", "outcome == 'completed'")
    for result in (every, doubted, completed):
        assert "1 finished trajectories are not verified" in result.stderr
    told = cold(there, "training", "--where", "reward == 17.0")
    assert (lines(told), "left out: 1 times a trajectory that verify finds fault with" in told.stderr) == ([], True)
    kept = cold(there, "trajectories", "--to", str(tmp_path / "kept"), "--json")
    assert (json.loads(kept.stdout)["rows"], json.loads(kept.stdout)["unverified"]) == (RUNS + 1, 1)
    assert "1 finished trajectories are not verified" in kept.stderr


def test_a_run_that_lost_its_beginning_is_counted(settings: Settings, tmp_path: Path) -> None:
    there = with_a_byte_changed(settings, tmp_path, "trajectory_id = 'airline-0-1' AND seq = 0")

    result = cold(there, "trajectories")

    assert len(lines(result)) == RUNS
    assert "left out: 1 times a trajectory with a fault" in result.stderr


def with_a_byte_changed(settings: Settings, tmp_path: Path, where: str) -> Settings:
    """A copy of everything in which the last byte of one payload is another."""
    shutil.copytree(settings.home, tmp_path / "home")
    there = load_settings(flags={"home": str(tmp_path / "home")}, environ={}, cwd=tmp_path)
    table = DeltaTable(f"{there.cold.url}/events")
    (name, event) = where.split(" AND ")
    rows = [row for row in table.to_pyarrow_table().to_pylist() if row["trajectory_id"] == name.split("'")[1]]
    (payload,) = [
        row["payload"] for row in rows if event in (f"seq = {row['seq']}", f"event_type = '{row['event_type']}'")
    ]
    changed = payload[:-1] + bytes([payload[-1] ^ 1])
    table.update(updates={"payload": f"x'{changed.hex()}'"}, predicate=where)
    return there


def test_without_the_blob_store_the_cold_tiers_own_blobs_serve(settings: Settings, tmp_path: Path) -> None:
    whole = cold(settings, "training").stdout
    copy = tmp_path / "bucket"
    shutil.copytree(settings.cold.url, copy)
    alone = settings.model_copy(update={"home": str(tmp_path / "elsewhere")})

    assert cold(alone, "training", "--log", f"cold:{copy}", "--set", f"cold.url={copy}").stdout == whole
    shutil.rmtree(copy / "blobs")
    assert cold(alone, "training", "--log", f"cold:{copy}", "--set", f"cold.url={copy}").stdout != whole
