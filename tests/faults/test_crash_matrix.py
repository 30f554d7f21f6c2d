"""SIGKILL, and SIGSTOP with a takeover, at points of a turn x effect class: a real broker, a real ledger service.

This is the short form; `make crash-matrix` runs every point with every class, many seeds.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.crash_matrix import CLASSES, ROOT, cases, judge_all, kill_all, overtaken, resumed
from tests.support.matrix_worker import Job
from tests.support.writing import make_topics
from tracklog.infra.log.open import open_log
from tracklog.infra.log.port import Log
from tracklog.schemas.topics import Topics

pytestmark = [pytest.mark.faults, pytest.mark.timeout(300)]

SEED = 1
POINTS = (
    "ModelReplied.sent",
    "ToolIntent.sent",
    "ToolIntent.stored",
    "intent.read",
    "effect.start",
    "effect.end",
    "snapshot.stored",
    "CheckpointTaken.sent",
)
FREEZES = ("ToolIntent.append", "intent.unread", "effect.start", "effect.end", "ToolResult.append")


@pytest.fixture
def ledger_url() -> Iterator[str]:
    """Of the service in a process of its own."""
    command = [sys.executable, "-m", "tests.support.ledger"]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, stdin=pipe, stdout=pipe, text=True, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}
    ) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.kill()


@pytest.fixture
def matrix(kafka_bootstrap: str, fresh_prefix: str, ledger_url: str, tmp_path: Path) -> Iterator[tuple[Log, Job]]:
    log = open_log(f"kafka://{kafka_bootstrap}")
    make_topics(log, Topics(fresh_prefix))
    yield log, Job(log.url, fresh_prefix, str(tmp_path / "blobs"), ledger_url, ())
    log.close()


def test_an_agent_killed_at_any_point_makes_each_effect_once_or_asks_a_person(matrix: tuple[Log, Job]) -> None:
    log, job = matrix
    chosen = cases(SEED, POINTS)
    kill_all(job, chosen)

    ended = resumed(job, [case.trajectory_id for case in chosen])

    assert judge_all(log, job, chosen, ended) == []


@pytest.mark.parametrize("effect", CLASSES)
def test_an_agent_frozen_at_any_point_and_overtaken_adds_nothing_when_it_wakes(
    effect: str, matrix: tuple[Log, Job]
) -> None:
    log, job = matrix
    with ThreadPoolExecutor(2) as pool:
        wrong = list(pool.map(lambda case: overtaken(log, job, case), cases(SEED, FREEZES, (effect,))))

    assert [one for some in wrong for one in some] == []
