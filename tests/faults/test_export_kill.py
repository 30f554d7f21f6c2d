"""An exporter that is killed, or frozen and overtaken, at each step of a commit: every record is in the table once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.exporter_process import HINTS, POINTS, Job
from tests.support.exporting import Exporting, exporting_on, runs
from tracklog.consumers.cold.verify import verification_of
from tracklog.infra.stack.process import wait_until

pytestmark = [pytest.mark.faults, pytest.mark.kafka, pytest.mark.timeout(300)]

WAIT_S = 120.0
ROWS_MAX = 40
ONCE = ("undecodable.", *HINTS)
"""Points that are passed once: in the others, one commit was made before."""


@pytest.fixture
def world(kafka_bootstrap: str, fresh_prefix: str, tmp_path: Path) -> Iterator[Exporting]:
    cold = {"rows_max": ROWS_MAX, "blobs": "check"}
    with exporting_on(f"kafka://{kafka_bootstrap}", fresh_prefix, tmp_path, cold=cold) as world:
        heard: list[object] = []
        world.fill(*runs(5))
        world.log.append(world.topic, b"key", b"not ours", (), lambda *said: heard.append(said))
        world.fill(*runs(5, tenant="acme", model="other"))
        yield world


@contextmanager
def stopped(world: Exporting, point: str, stop: signal.Signals) -> Iterator[subprocess.Popen[bytes]]:
    """An exporter that has got to the point, and is killed or frozen there."""
    own = {"prefix", "home", "topics", "loop", "cold"}
    settings = world.settings.model_dump(mode="json", include=own) | {"log": {"url": world.log.url}}
    occurrence = 1 if point.startswith(ONCE) else 2
    job = Job(settings, point, occurrence, int(stop))
    process = subprocess.Popen([sys.executable, "-m", "tests.support.exporter_process", job.argument()])
    try:
        assert wait_until(lambda: process.poll() is not None or is_frozen(process.pid), WAIT_S), "it did not stop"
        yield process
    finally:
        process.kill()
        process.wait()


def is_frozen(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def assert_every_record_is_there_once(world: Exporting) -> None:
    foreign = [(row["partition"], row["offset"], row["value"]) for row in world.undecodable()]
    assert sorted(world.exported() + foreign) == sorted(world.expected())
    assert len(foreign) == 1
    found = verification_of(world.settings, blobs=False)
    assert [str(fault) for report in found.histories.reports() for fault in report.faults] == []
    assert found.log.faults == []


@pytest.mark.parametrize("point", POINTS)
def test_an_exporter_killed_at_a_step_of_a_commit_leaves_nothing_out_and_nothing_twice(
    world: Exporting, point: str
) -> None:
    with stopped(world, point, signal.SIGKILL) as process:
        assert process.wait(WAIT_S) == -signal.SIGKILL, "it came to its end without passing the point"

    world.drain()

    assert_every_record_is_there_once(world)


@pytest.mark.parametrize("point", POINTS)
def test_an_exporter_frozen_at_a_step_and_overtaken_writes_nothing_twice_when_it_wakes(
    world: Exporting, point: str
) -> None:
    with stopped(world, point, signal.SIGSTOP) as process:
        assert process.poll() is None, "it came to its end without passing the point"

        world.drain()
        os.kill(process.pid, signal.SIGCONT)
        if point in HINTS:
            process.terminate()  # a member goes on for ever

        assert process.wait(WAIT_S) == 0
    assert_every_record_is_there_once(world)
