"""Pods of the chart run: their very commands, variables and files, on a real Kafka and Redis, probed as on a node."""

from __future__ import annotations

import pytest

from tests.support.chart_release import READY_S, RUN_S, Release
from tests.support.kube_cluster import until

REQUESTED_MIB = 192
"""What the chart requests for each pod; a role that holds little must get by with it."""

pytestmark = [pytest.mark.kafka, pytest.mark.redis]


@pytest.mark.timeout(240)
def test_one_run_goes_through_all_roles_and_each_stops_when_it_is_told_to(release: Release) -> None:
    again = release.node.done("Job", "-topics", READY_S)
    assert "created" not in again.said(), "the hook of an upgrade finds its topics"
    pods = release.start_all()

    release.submit("clerk", "2 30", "shop-1")
    release.submit("night", "1", "night-1")
    held = until(lambda: release.call("GET", "/approvals")["approvals"], RUN_S, "the large order waits for a person")
    assert release.shop.made == {"shop-1.order-1": 1}
    release.call("POST", f"/trajectories/shop-1/calls/{held[0]['call_id']}/decision", {"choice": "approve"}, who="ada")
    release.until_ended("shop-1", "night-1")

    assert release.shop.made == {"shop-1.order-1": 1, "shop-1.order-2": 1}
    release.node.done("Pod", "-selftest", READY_S)
    release.command("verify", "--all", "--against", "redis")
    release.command("projections", "verify", "orders", "--load", "shop_agent.processor:Orders")
    assert {pod.name: pod.flaps for pod in pods.values() if pod.flaps} == {}
    for name, pod in pods.items():
        print(f"{name}: ready after {pod.became_ready_s:.1f} s, {pod.resident_mib():.0f} MiB")  # noqa: T201 - measured
        assert pod.resident_mib() < REQUESTED_MIB, name
    for name, pod in pods.items():
        code, took_s = pod.terminate()
        assert code == 0, f"{name}: {pod.said()}"
        assert took_s < pod.grace_s
