"""`tracklog new processor`: the package that it writes passes its own test and is loaded, as it is written."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tracklog.consumers.cli.app import app
from tracklog.processors.loading import load_processor

CHILD_S = 120


def test_what_is_written_passes_its_own_test_and_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "mine"
    result = CliRunner().invoke(app, ["new", "processor", "tool-calls", "--dir", str(folder)])
    assert result.exit_code == 0, result.output

    own = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--rootdir={folder}", "tests"],
        cwd=folder,
        env={"PYTHONPATH": ":".join([str(folder), *sys.path]), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=CHILD_S,
        check=False,
    )
    assert own.returncode == 0, own.stdout + own.stderr
    assert "2 passed" in own.stdout

    monkeypatch.chdir(folder)
    points = tomllib.loads((folder / "pyproject.toml").read_text())["project"]["entry-points"]["tracklog.processors"]
    assert load_processor(points["tool-calls"]).name == "tool-calls"


@pytest.mark.parametrize("name", ["Tool", "9", "a--b", "a-", "../x", "class", "spend"])
def test_a_name_that_is_none_is_refused(tmp_path: Path, name: str) -> None:
    result = CliRunner().invoke(app, ["new", "processor", name, "--dir", str(tmp_path / "new")])
    assert result.exit_code == 2
    assert not (tmp_path / "new").exists()


def test_nothing_is_written_over(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    result = CliRunner().invoke(app, ["new", "processor", "tool-calls", "--dir", str(tmp_path)])
    assert result.exit_code == 2
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
