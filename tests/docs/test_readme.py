"""The programs in the README run as they stand, and come to what it says."""

from __future__ import annotations

import difflib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.writing import read_accepted
from tracklog.infra.log.open import open_log

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"


def test_the_program_of_the_readme_runs_again_and_again_and_leaves_no_claim(tmp_path: Path) -> None:
    found = re.search(r"```python\n(import asyncio\n.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    program = found.group(1) + "\nprint('done')\n"

    for _ in range(2):
        args = [sys.executable, "-c", f"import sys; sys.path[:0] = {sys.path!r}\n" + program]
        done = subprocess.run(args, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
        assert (done.stdout, done.stderr) == ("done\n", "")

    log = open_log(f"sqlite:{tmp_path / '.tracklog' / 'log.db'}")
    names = [event.name for event in read_accepted(log, "trip-1")]
    log.close()
    whole = ["OwnershipClaimed", "TaskStarted", "TaskEnded", "OwnershipReleased"]
    assert names == [*whole, "OwnershipClaimed", "OwnershipReleased"]


def test_the_lines_that_make_an_agent_durable_are_those_of_the_example() -> None:
    before, after = (
        (ROOT / "examples" / "openai_loop" / f"{form}.py").read_text(encoding="utf-8").splitlines()
        for form in ("before", "durable")
    )
    differs = [line for line in list(difflib.unified_diff(before, after, n=0))[2:] if line[0] in "+-"]
    found = re.search(r"```diff\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    shown = found.group(1).splitlines()

    assert [line for line in shown if line[:1] in ("+", "-")] == differs
    assert [line for line in shown if line[:1] == " " and line[1:] not in before] == []


@pytest.mark.parametrize("command", ["openai_loop --before", "openai_loop"])
def test_an_agent_that_is_killed_comes_to_what_the_readme_shows(command: str) -> None:
    shown = (
        README.read_text(encoding="utf-8")
        .partition(f"-m examples.kill9 {command}\n```\n\n```\n")[2]
        .partition("```")[0]
    )
    path = os.pathsep.join([*(str(ROOT / role) for role in ("schemas", "infra", "producers")), str(ROOT)])
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONIOENCODING": "utf-8"}

    done = subprocess.run(
        [sys.executable, "-m", "examples.kill9", *command.split()],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=90,
        check=False,
    )

    assert done.stdout == shown, done.stderr
