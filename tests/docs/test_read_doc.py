"""The program of docs/read.md runs as it stands."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from typer.testing import CliRunner

from tests.conftest import require_valkey
from tests.support.chains import append_all, run_of
from tracklog.consumers.cli.app import app
from tracklog.infra.log.open import open_log

PAGE = Path(__file__).parents[2] / "docs" / "read.md"


def test_the_program_lists_what_is_folded_and_says_how_far_it_is(tmp_path: Path, redis_db: str) -> None:
    require_valkey()
    found = re.search(r"```python\n(import asyncio\n.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    given = {"TRACKLOG_LOG": f"sqlite:{tmp_path / 'log.db'}", "TRACKLOG_REDIS": redis_db}
    runner = CliRunner(env={**given, "TRACKLOG_HOME": str(tmp_path)})
    assert runner.invoke(app, ["topics", "apply"]).exit_code == 0
    log = open_log(given["TRACKLOG_LOG"])
    append_all(log, "tracklog.events", run_of("trip-1", turns=2, tenant="default").records)
    log.close()
    assert runner.invoke(app, ["process", "--once"]).exit_code == 0

    program = f"import sys; sys.path[:0] = {sys.path!r}\n{found.group(1)}"
    environment = {**os.environ, **given, "TRACKLOG_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert (done.stdout, done.stderr) == ("trip-1 completed 2\nbehind: 0\n", "")
