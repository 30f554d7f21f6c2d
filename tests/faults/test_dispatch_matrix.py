"""SIGKILL and SIGSTOP of dispatchers, two of which share the calls of a worker, at points of a call x effect class.

This is the short form; `make crash-matrix` goes through every point, on one broker and on three whose leaders die.
"""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.conftest import ClusterFactory
from tests.support.brokers import leaders_killed
from tests.support.crash_matrix import CLASSES, Case
from tests.support.dispatch_matrix import dispatched_cases, settled_cases, stop_all
from tracklog.infra.log.open import open_log

pytestmark = [pytest.mark.faults, pytest.mark.kafka, pytest.mark.timeout(600)]

KILLED = dispatched_cases(1, ("bid.read", "effect.end", "Outcome.stored", "ToolResult.append"), CLASSES[1:])
FROZEN = dispatched_cases(2, ("Attempt.stored", "send", "effect.start"), CLASSES[1:])


@pytest.mark.parametrize(
    ("stop", "cases"),
    [(signal.SIGKILL, [*KILLED, *settled_cases(1)[-4:]]), (signal.SIGSTOP, FROZEN)],
    ids=["killed", "frozen"],
)
async def test_a_dispatcher_stopped_at_a_point_is_overtaken_and_no_effect_happens_twice(
    stop: int, cases: list[Case], kafka_bootstrap: str, fresh_prefix: str, tmp_path: Path
) -> None:
    log = open_log(f"kafka://{kafka_bootstrap}")
    fired = await stop_all(log, fresh_prefix, tmp_path, cases, stop)
    log.close()

    assert fired.wrong == []
    assert fired.never == []
    assert fired.stops >= len(cases)


async def test_the_same_while_leaders_of_three_brokers_are_killed(
    kafka_cluster_factory: ClusterFactory, fresh_prefix: str, tmp_path: Path
) -> None:
    cluster = kafka_cluster_factory(nodes=3)
    cases = dispatched_cases(1, ("bid.read", "effect.end"), CLASSES[1:])
    log = open_log(f"kafka://{cluster.bootstrap}")
    with leaders_killed(cluster) as killed:
        fired = await stop_all(log, fresh_prefix, tmp_path, cases, signal.SIGKILL, replicas=3)
    log.close()

    assert (fired.wrong, fired.never) == ([], [])
    assert killed
