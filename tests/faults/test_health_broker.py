"""A broker that is frozen restarts nobody: every role stays alive, is not ready, and says why."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.standing import Installation
from tracklog.infra.clock import SystemClock
from tracklog.infra.stack.kafka_server import KafkaServer
from tracklog.infra.stack.process import wait_until

pytestmark = [pytest.mark.faults, pytest.mark.kafka, pytest.mark.timeout(300)]

STALL_S = 25.0
"""Above what a few requests to a broker may take."""
FROZEN_S = 1.8 * STALL_S


def test_roles_of_a_broker_that_is_frozen_stay_alive_and_are_ready_again_when_it_wakes(
    kafka_server: KafkaServer, redis_db: str, fresh_prefix: str, tmp_path: Path
) -> None:
    settings = {"loop.stall_timeout_s": STALL_S, "health.projection_age_s_max": 3600}
    url = f"kafka://{kafka_server.bootstrap}"
    here = Installation(url, redis_db, fresh_prefix, tmp_path / "home", settings)
    here.run("topics", "apply")
    here.run("submit", "clerk", "look", "--id", "trip-1")
    agent = "tests.support.standing_views:clerk"
    roles = (("process",), ("route",), ("worker", agent))
    (node,) = kafka_server.nodes
    with ExitStack() as stack:
        standing = [stack.enter_context(here.standing(*role)) for role in roles]
        for one in standing:
            one.until("/readyz", 200)
        node.process.freeze()
        try:
            for one in standing:
                one.until("/readyz", 503)
                assert any(kafka_server.bootstrap in problem for problem in one.problems("/readyz"))
            clock = SystemClock()
            began_s = clock.monotonic_s()
            over = wait_until(
                lambda: (
                    any(one.get("/healthz")[0] != 200 for one in standing) or clock.monotonic_s() - began_s > FROZEN_S
                ),
                2 * FROZEN_S,
            )
            assert over
            assert [one.get("/healthz") for one in standing] == [(200, {"status": "alive", "problems": []})] * 3
        finally:
            node.process.thaw()
        for one in standing:
            one.until("/readyz", 200)
            assert one.process.poll() is None
