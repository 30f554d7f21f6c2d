"""A group member killed or frozen while it owns partitions: they move, and what it says later does not count."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.contract.log_cases import LogCase, Recorder, drive
from tracklog.infra.log.port import Log
from tracklog.infra.log.ranges import append_and_wait
from tracklog.infra.log.sqlite import SqliteLog, SqliteOptions

pytestmark = pytest.mark.faults

SESSION_S = 2.0

MEMBER = """
import sys
from pathlib import Path
from tests.contract.log_cases import Recorder, drive
from tests.faults.test_log_lost_member import open_case
url, topic, group = sys.argv[1:]
recorder = Recorder()
member = open_case(url).group(group, topic, recorder)
drive([member], until=lambda: bool(recorder.owned))
print("owns", flush=True)
drive([member], until=lambda: ("lost" in [told[0] for told in recorder.told]), timeout_s=60)
print("lost", flush=True)
member.commit(dict.fromkeys(range(4), 99))
print("committed", flush=True)
"""


def open_case(url: str) -> Log:
    if url.startswith("sqlite:"):
        options = SqliteOptions(session_s=SESSION_S, turn_interval_s=0.05)
        return SqliteLog(Path(url.removeprefix("sqlite:")), now_ms=lambda: 0, options=options)
    return LogCase("kafka", url, "").open()


@contextmanager
def member_process(url: str, topic: str, group: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", MEMBER, url, topic, group],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait(10)


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@pytest.fixture(params=["sqlite", pytest.param("kafka", marks=pytest.mark.kafka)])
def case(request: pytest.FixtureRequest, log_urls: Callable[[str], str], fresh_prefix: str) -> LogCase:
    return LogCase(request.param, log_urls(request.param), fresh_prefix)


def test_partitions_of_a_killed_member_move(case: LogCase) -> None:
    log = open_case(case.url)
    topic = case.topic(log, partitions=4)
    group = f"{case.prefix}.killed"
    recorder = Recorder()
    with member_process(case.url, topic, group) as process:
        assert said(process) == "owns"
        member = log.group(group, topic, recorder)
        drive([member], until=lambda: len(recorder.owned) == 2)

        process.send_signal(signal.SIGKILL)

        drive([member], until=lambda: len(recorder.owned) == 4)
    member.close()
    log.close()


@pytest.mark.kafka
def test_frozen_member_learns_of_its_loss_and_its_commit_is_left_out(kafka_bootstrap: str, fresh_prefix: str) -> None:
    """On Kafka only: a process frozen inside a transaction of the embedded log stops its writers (DESIGN §3)."""
    case = LogCase("kafka", f"kafka://{kafka_bootstrap}", fresh_prefix)
    log = open_case(case.url)
    topic = case.topic(log, partitions=4)
    group = f"{case.prefix}.frozen"
    for number in range(8):
        append_and_wait(log, topic, f"run-{number}".encode(), b"v", timeout_s=20)
    recorder = Recorder()
    with member_process(case.url, topic, group) as process:
        assert said(process) == "owns"
        process.send_signal(signal.SIGSTOP)
        member = log.group(group, topic, recorder)
        drive([member], until=lambda: len(recorder.owned) == 4)
        member.commit(dict.fromkeys(range(4), 1))

        process.send_signal(signal.SIGCONT)

        lines: list[str] = []
        while "committed" not in lines:
            drive([member], until=lambda: len(recorder.owned) >= 1, timeout_s=20)
            member.poll(10, 0.05)
            if process.poll() is not None or readable(process):
                line = said(process)
                assert line, "the member ended early"
                lines.append(line)
    assert lines == ["lost", "committed"]
    assert 99 not in member.committed(range(4)).values()
    member.close()
    log.close()


def readable(process: subprocess.Popen[str]) -> bool:
    import select

    assert process.stdout is not None
    return bool(select.select([process.stdout], [], [], 0.05)[0])
