"""Dispatchers that fight for partitions, and one that is frozen before the send. Long: `make crash-matrix`."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.churn import Churn
from tests.support.dispatch_matrix import dispatched_cases
from tests.support.ledger import Ledger, ledger
from tests.support.member_matrix import DISPATCHERS, MemberMatrix
from tracklog.infra.log.open import open_log
from tracklog.infra.log.port import Log

pytestmark = [pytest.mark.faults, pytest.mark.kafka, pytest.mark.timeout(300)]

SECONDS = 25.0
MOVES_MIN = 4


@pytest.fixture
def log(kafka_bootstrap: str) -> Iterator[Log]:
    log = open_log(f"kafka://{kafka_bootstrap}")
    yield log
    log.close()


@pytest.fixture
def service() -> Iterator[tuple[Ledger, str]]:
    with ledger() as kept:
        yield kept


async def test_dispatchers_that_come_and_go_all_the_time_make_each_call_once(
    log: Log, service: tuple[Ledger, str], fresh_prefix: str, tmp_path: Path
) -> None:
    churned = await Churn(log, fresh_prefix, tmp_path, service[1], seconds=SECONDS, seed=1).run()

    assert churned.wrong == []
    assert churned.moves >= MOVES_MIN
    assert churned.calls > 0


async def test_a_dispatcher_frozen_before_the_send_does_not_send_when_it_wakes_past_its_deadline(
    log: Log, service: tuple[Ledger, str], fresh_prefix: str, tmp_path: Path
) -> None:
    counted, url = service
    cases = [case for case in dispatched_cases(1, ("send",), ("probe", "opaque")) if case.occurrence == 1]
    fired = await MemberMatrix(log, fresh_prefix, tmp_path, url, cases, signal.SIGSTOP, members=DISPATCHERS).run()

    assert (fired.wrong, fired.never) == ([], [])
    assert [counted.made[f"{case.trajectory_id}-c0"] for case in cases] == [0] * len(cases)
