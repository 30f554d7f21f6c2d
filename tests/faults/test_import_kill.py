"""kill -9 of an importer, again and again: in the end every step is in the log once (DESIGN §4, §5)."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.import_worker import some_runs
from tests.support.importing import assert_in_once, import_all
from tests.support.writing import make_topics, on_log
from tracklog.infra.blobs import open_blobs
from tracklog.infra.log.open import open_log
from tracklog.infra.log.port import Log
from tracklog.infra.stack.process import wait_until
from tracklog.producers.importers.plan import plan
from tracklog.producers.importers.report import ImportReport
from tracklog.schemas.topics import Topics

ROOT = Path(__file__).resolve().parents[2]
KILLS = 4
SEED = 20
PROGRESS_WITHIN_S = 60.0


def start_importer(url: str, prefix: str, blobs: Path) -> subprocess.Popen[str]:
    roles = ("schemas", "infra", "producers")
    path = os.pathsep.join([*(str(ROOT / role) for role in roles), str(ROOT)])
    command = [sys.executable, "-m", "tests.support.import_worker", url, prefix, str(blobs)]
    return subprocess.Popen(command, env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.PIPE, text=True)


def records(log: Log, prefix: str) -> int:
    topic = Topics(prefix).events
    return sum(log.bounds(topic, p).end for p in range(log.partition_count(topic)))


def kill_at(importer: subprocess.Popen[str], log: Log, prefix: str, target: int) -> None:
    """SIGKILL as soon as the log has so many records; the importer may be done by then."""
    there = wait_until(lambda: records(log, prefix) >= target or importer.poll() is not None, PROGRESS_WITHIN_S)
    assert there, f"no progress to {target} records within {PROGRESS_WITHIN_S} s"
    importer.send_signal(signal.SIGKILL)
    importer.communicate(timeout=30)


@pytest.mark.faults
@pytest.mark.parametrize("kind", ["sqlite", pytest.param("kafka", marks=pytest.mark.kafka)])
async def test_an_importer_killed_at_random_moments_writes_each_step_once(
    kind: str, log_urls: Callable[[str], str], fresh_prefix: str, tmp_path: Path
) -> None:
    url, blobs = log_urls(kind), tmp_path / "blobs"
    runs = some_runs()
    total = sum(len(plan(run)) for run in runs)
    dice = random.Random(SEED)
    log = open_log(url)
    make_topics(log, Topics(fresh_prefix))
    targets = sorted(dice.sample(range(1, total * 9 // 10), KILLS))
    for target in targets:
        kill_at(start_importer(url, fresh_prefix, blobs), log, fresh_prefix, target)
    killed_at = records(log, fresh_prefix)
    log.close()
    async with on_log(url, fresh_prefix) as (log, producer):
        report = await import_all(log, producer, open_blobs(str(blobs)), runs, prefix=fresh_prefix)
        assert (report.runs, report.refused, report.conflicts, report.taken) == (len(runs), (), (), ())
        assert 0 < killed_at < total, "the importer was not killed in the middle"
        assert_in_once(log, runs, fresh_prefix)
        again = await import_all(log, producer, open_blobs(str(blobs)), runs, prefix=fresh_prefix)
        assert again == ImportReport(already=len(runs))
