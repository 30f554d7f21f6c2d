"""docs/first-agent.md, pasted line by line: one shell, real processes, a dispatcher killed while it books.

What is only a look (`list`) is done until it shows what the page shows; everything else is done once.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "first-agent.md"
LOOKS_MAX = 200
BLOCK = re.compile(r"```(bash|)\n(.*?)```", re.DOTALL)


def script() -> tuple[str, list[str]]:
    """The commands of the page as one script, and what it shows. Before what is shown the script says MARK."""
    lines = ["set -euo pipefail"]
    shown = []
    for kind, text in BLOCK.findall(
        re.sub(r"```python\n.*?```", "", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    ):
        if not kind:
            shown.append(text)
            continue
        for line in text.splitlines():
            look = re.fullmatch(r"tracklog (approvals|escalations) list", line)
            lines.append(f"until {line} | grep -q trip-1; do ((looks++ < {LOOKS_MAX})); done; {line}" if look else line)
    return "\n".join(["looks=0", *lines, "wait"]), shown


def blurred(text: str) -> str:
    """Ages, hashes and the width of columns are other ones each time."""
    for pattern, stands in ((r"\b\d+ s\b", "N s"), (r"\b[0-9a-f]{16}\b", "HASH"), (r" +", " ")):
        text = re.sub(pattern, stands, text)
    return text.strip()


@pytest.mark.faults
@pytest.mark.timeout(240)
def test_the_page_does_what_it_says(tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (tmp_path / "tracklog").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m tests.support.command_line "$@"\n')
    (tmp_path / "tracklog").chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)]),
    }
    commands, shown = script()

    with subprocess.Popen(
        ["bash", "-c", commands],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        start_new_session=True,
    ) as shell:
        try:
            said, complained = shell.communicate(timeout=200)
        finally:
            if shell.poll() is None:
                os.killpg(shell.pid, signal.SIGKILL)

    assert shell.returncode == 0, said + complained
    assert (tmp_path / "bookings.txt").read_text() == "TL100\n"
    assert len(shown) == 3
    for text in shown:
        assert blurred(text) in blurred(said), said
