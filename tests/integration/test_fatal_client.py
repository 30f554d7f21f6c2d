"""A client of the log that gave up for good ends the process with a code of its own, whatever runs on it."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from contextlib import closing
from typing import Final

import pytest

from tests.support.fatal_client import BROKEN
from tests.support.worker_process import ROLES, ROOT
from tests.support.writing import make_topics
from tracklog.infra.log.open import open_log
from tracklog.infra.stack.ports import free_ports
from tracklog.schemas.errors import ClientFatal
from tracklog.schemas.topics import Topics

BOUND_S: Final = 60.0
COMMANDS: Final = {
    "serve": ("serve",),
    "route": ("route",),
    "worker": ("worker", "tests.support.fatal_agent:idle"),
    "dispatch": ("dispatch", "tests.support.fatal_agent"),
}
READY: Final = {"serve": "serving", "route": "routing", "worker": "running", "dispatch": "dispatching"}


@pytest.mark.parametrize("role", COMMANDS)
def test_a_role_whose_client_gave_up_for_good_ends_with_its_own_code(
    role: str, kafka_bootstrap: str, redis_db: str, fresh_prefix: str
) -> None:
    # given a role at work
    with closing(open_log(f"kafka://{kafka_bootstrap}")) as log:
        make_topics(log, Topics(fresh_prefix), 1)
    settings = {"topics.partitions": 1, "topics.replication_factor": 1, "topics.min_insync_replicas": 1}
    settings |= {"api.port": free_ports(1)[0]}
    options = ["--log", f"kafka://{kafka_bootstrap}", "--redis", redis_db, "--prefix", fresh_prefix]
    options += [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    path = os.pathsep.join([*(str(ROOT / one) for one in ROLES), str(ROOT)])
    with subprocess.Popen(
        [sys.executable, "-m", "tests.support.fatal_client", *options, *COMMANDS[role]],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "PYTHONPATH": path},
        cwd=ROOT,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            before = list(itertools.takewhile(lambda line: not line.startswith(READY[role]), process.stdout))
            assert process.poll() is None, before
            # when its client breaks, and so does each that is made in its place
            said, _ = process.communicate("now\n", timeout=BOUND_S)
        finally:
            process.kill()
    # then it ends, and says what to do by its code
    assert process.returncode == ClientFatal.exit_code == 70, [*before, said]
    assert BROKEN in said
    assert "error: the producer of kafka://" in said
