"""Recorded runs from files and folders."""

from __future__ import annotations

import lzma
from pathlib import Path

import pytest

from tests.support.importing import chat_line, chat_record
from tracklog.producers.data import shipped_file, shipped_files, shipped_runs
from tracklog.producers.importers import record
from tracklog.producers.importers.files import read_runs
from tracklog.producers.importers.run import BadRun, Run


def ids(*paths: Path) -> list[str]:
    return [run.trajectory_id if isinstance(run, Run) else str(run) for run in read_runs(paths)]


def test_a_folder_gives_all_known_files_under_it_by_name(tmp_path: Path) -> None:
    for name in shipped_files():
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(shipped_file(name))
    (tmp_path / "README.md").write_text("no run")
    found = list(read_runs([tmp_path], model="gpt-4o"))
    assert [r.trajectory_id for r in found if isinstance(r, Run)] == [
        r.trajectory_id for r in shipped_runs() if isinstance(r, Run)
    ]
    first = next(iter(shipped_runs()))
    assert first.model_copy(update={"file": found[0].file}) == found[0]


def test_packed_files_are_read_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "my_runs.jsonl.xz").write_bytes(lzma.compress(chat_line(chat_record(task_id=1, trial=2))))
    assert ids(tmp_path / "my_runs.jsonl.xz") == ["my-1-2"]


def test_what_cannot_be_read_is_named_and_the_rest_goes_on(tmp_path: Path) -> None:
    (tmp_path / "good.jsonl").write_bytes(chat_line(chat_record()))
    (tmp_path / "empty.jsonl").write_bytes(b"")
    (tmp_path / "notes.txt").write_text("no run")
    (tmp_path / "cut.jsonl.xz").write_bytes(lzma.compress(chat_line(chat_record()) * 99)[:60])
    (tmp_path / "bad.jsonl.xz").write_bytes(b"not packed")
    (tmp_path / "folder").mkdir()
    names = ["missing.jsonl", "empty.jsonl", "notes.txt", "cut.jsonl.xz", "bad.jsonl.xz", "folder", "good.jsonl"]
    found = list(read_runs([tmp_path / name for name in names]))
    reasons = [run.reason for run in found if isinstance(run, BadRun)]
    assert [run.file for run in found if isinstance(run, BadRun)] == [str(tmp_path / name) for name in names[:-1]]
    assert "No such file" in reasons[0]
    assert reasons[1] == "the file holds no run"
    assert "not a known kind of file" in reasons[2]
    assert all(reason.startswith("cannot be read: ") for reason in reasons[3:5])
    assert "no .jsonl and no .traj" in reasons[5]
    assert isinstance(found[-1], Run)


def test_a_run_above_the_bound_is_refused_and_the_next_one_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record, "RUN_BYTES_MAX", 2000)
    long = chat_record(id="long", extra="x" * 3000)
    (tmp_path / "a.jsonl").write_bytes(chat_line(long) + chat_line(chat_record()))
    (tmp_path / "b.traj").write_bytes(chat_line(long))
    found = list(read_runs([tmp_path / "a.jsonl", tmp_path / "b.traj"]))
    assert [run.trajectory_id for run in found if isinstance(run, Run)] == ["run-1"]
    assert "more than 2000 bytes" in str(found[-1])
    assert [run.line for run in found if isinstance(run, BadRun)] == [1, 0]
