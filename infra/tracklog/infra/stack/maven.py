"""Running Maven to fetch jars; nothing is built with it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Final

from tracklog.schemas.errors import StackError

FETCH_TIMEOUT_S: Final = 900.0
ERROR_LINES_MAX: Final = 8


def find_maven() -> Path:
    """Raises StackError when `mvn` is not on the PATH."""
    mvn = shutil.which("mvn")
    if mvn is None:
        raise StackError(
            "Maven is needed once to fetch jars, and there is no `mvn` on the PATH",
            hint="install the package maven, or use infra/compose.yaml with Docker, or the embedded log",
        )
    return Path(mvn)


def run_maven(*arguments: str) -> None:
    """Runs `mvn` quietly. Raises StackError with the end of what it said when it fails or takes too long."""
    try:
        done = subprocess.run(
            [str(find_maven()), "-q", "-B", *arguments],
            capture_output=True,
            text=True,
            timeout=FETCH_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise StackError(f"Maven did not end within {FETCH_TIMEOUT_S:.0f} s") from None
    if done.returncode != 0:
        said = (done.stdout + done.stderr).strip().splitlines()
        tail = "\n".join([line for line in said if "ERROR" in line][:ERROR_LINES_MAX] or said[-ERROR_LINES_MAX:])
        raise StackError(
            f"Maven could not fetch the jars (exit {done.returncode}):\n{tail}",
            hint="check that a Maven repository is reachable, then try again",
        )
