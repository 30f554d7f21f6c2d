"""Recorded airline runs done again by workers that are killed: all end, each write made once, the work the same.

The short form; `make airline` does all 120.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.airline import recordings
from tests.support.airline_drive import Driven, Plan, drive
from tests.support.airline_judge import judge
from tests.support.airline_service import service_process

pytestmark = [pytest.mark.faults, pytest.mark.kafka, pytest.mark.timeout(600)]

PLAN = Plan(recordings()[:10], "mixed", workers=2, in_flight=4, partitions=4)


def run(plan: Plan, bootstrap: str, prefix: str, folder: Path) -> Driven:
    with service_process(dict(os.environ)) as url:
        return asyncio.run(drive(plan, bootstrap, prefix, folder, url))


def test_killed_workers_finish_recorded_runs_with_each_write_made_once(
    kafka_bootstrap: str, fresh_prefix: str, tmp_path: Path
) -> None:
    peaceful = run(PLAN, kafka_bootstrap, f"{fresh_prefix}-peace", tmp_path)
    plan = replace(PLAN, kill_every=100)
    killed = run(plan, kafka_bootstrap, f"{fresh_prefix}-kills", tmp_path)

    assert judge(PLAN, peaceful, peaceful) == []
    assert killed.kills >= 4
    assert judge(plan, killed, peaceful) == []
