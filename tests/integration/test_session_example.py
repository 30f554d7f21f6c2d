"""The example of docs/sessions.md, run as written."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROLES = ("schemas", "infra", "producers")


def run_example(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(str(ROOT / role) for role in ROLES)
    command = [sys.executable, "-u", str(ROOT / "examples" / "durable_loop.py"), *arguments]
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONIOENCODING": "utf-8"}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60, encoding="utf-8"
    )


def test_the_loop_that_is_killed_goes_on_and_books_once(tmp_path: Path) -> None:
    killed = run_example(tmp_path, "--kill")
    resumed = run_example(tmp_path)
    again = run_example(tmp_path)

    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert (resumed.returncode, again.returncode) == (0, 0), resumed.stderr + again.stderr
    assert killed.stdout + resumed.stdout in (ROOT / "docs" / "sessions.md").read_text(encoding="utf-8")
    assert again.stdout == "TL100 to Zürich is booked.\n"
    assert len((tmp_path / "bookings.txt").read_text().splitlines()) == 1
