"""SIGKILL and SIGSTOP of worker processes at points of a turn x effect class; another worker takes over.

This is the short form; `make crash-matrix` goes through every point.
"""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.support.crash_matrix import CLASSES, cases
from tests.support.ledger import ledger
from tests.support.member_matrix import MemberMatrix
from tracklog.infra.log.open import open_log

pytestmark = [pytest.mark.faults, pytest.mark.kafka, pytest.mark.timeout(300)]

POINTS = ("ToolIntent.stored", "effect.end", "snapshot.stored", "CheckpointTaken.sent")


@pytest.mark.parametrize("stop", [signal.SIGKILL, signal.SIGSTOP])
async def test_a_worker_stopped_at_a_point_is_overtaken_and_each_effect_is_there_once_or_a_person_is_asked(
    stop: int, kafka_bootstrap: str, fresh_prefix: str, tmp_path: Path
) -> None:
    log = open_log(f"kafka://{kafka_bootstrap}")
    with ledger() as (_, url):
        fired = await MemberMatrix(log, fresh_prefix, tmp_path, url, cases(1, POINTS, CLASSES[1:]), stop).run()
    log.close()

    assert fired.wrong == []
    assert fired.never == []
    assert fired.stops == len(fired.ended)
