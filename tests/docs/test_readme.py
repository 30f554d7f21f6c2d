"""The program in the README runs as it stands, in an empty folder, and again."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.support.writing import read_accepted
from tracklog.infra.log.open import open_log

README = Path(__file__).parents[2] / "README.md"


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
