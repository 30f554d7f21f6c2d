"""`tracklog at`, `diff` and `pull`, as a person types them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tests.support.importing import chat_line, chat_record
from tracklog.consumers.cli.app import app

Tracklog = Callable[..., Result]


@pytest.fixture
def tracklog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tracklog:
    """Two runs are imported that differ in their last reply."""
    monkeypatch.chdir(tmp_path)
    runner = CliRunner(env={"TRACKLOG_HOME": "data", "COLUMNS": "200"})

    def run(*arguments: object, exit_code: int = 0) -> Result:
        result = runner.invoke(app, [str(one) for one in arguments])
        assert result.exit_code == exit_code, f"{arguments}: {result.output}\n{result.exception!r}"
        return result

    messages = [dict(one) for one in chat_record()["messages"]]
    messages[4]["content"] = "nothing found"
    lines = (chat_line(chat_record()), chat_line(chat_record(id="run-2", messages=messages)))
    (tmp_path / "runs.jsonl").write_bytes(b"".join(lines))
    run("import", "runs.jsonl")
    return run


def test_a_turn_is_shown_as_the_model_saw_it(tracklog: Tracklog, tmp_path: Path) -> None:
    found = json.loads(tracklog("at", "run-1", "--turn", 2, "--json").stdout)
    assert found["context"]["messages"] == chat_record()["messages"][:4]
    assert found["context"]["as_recorded"]
    text = tracklog("at", "run-1", "--turn", 1, "--whole").stdout
    assert "2 messages" in text
    assert 'find({"q":"Zürich"})' in text

    shutil.rmtree(tmp_path / "data" / "blobs")
    assert "cannot be shown as it was" in tracklog("at", "run-1", exit_code=1).stderr


def test_two_runs_are_compared_and_the_exit_code_says_whether_they_are_the_same(tracklog: Tracklog) -> None:
    text = tracklog("diff", "run-1", "run-2", exit_code=1).stdout
    assert "run-1 and run-2 differ first at turn 2: reply" in text
    assert "nothing found" in text
    found = json.loads(tracklog("diff", "run-1", "run-2", "--json", exit_code=1).stdout)
    assert (found["same"], found["first"]["turn"], found["first"]["what"]) == (False, 2, "reply")
    assert "are the same" in tracklog("diff", "run-1", "run-1").stdout


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (("at", "run-9"), "no trajectory 'run-9'"),
        (("at", "run-1", "--turn", 9), "it has turns 1 to 2"),
        (("diff", "run-1", "run-9"), "no trajectory 'run-9'"),
        (("show", "run-9"), "no trajectory 'run-9'"),
        (("pull", "run-1", "--to", "there.db"), "for example --to sqlite:bugs/log.db"),
        (("pull", "run-1", "--to", "sqlite:"), "is no file to bring it into"),
        (("pull", "run-1", "--to", "sqlite:data/log.db"), "is the log that is pulled from"),
        (("pull", "run-9", "--to", "sqlite:bugs/log.db"), "no trajectory 'run-9'"),
    ],
)
def test_bad_input_is_said(tracklog: Tracklog, line: tuple[object, ...], said: str) -> None:
    assert said in " ".join(tracklog(*line, exit_code=2).stderr.split())
