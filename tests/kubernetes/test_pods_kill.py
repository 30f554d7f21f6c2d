"""Pods of the chart are killed and rolled while runs go on, each role; every effect happens once."""

from __future__ import annotations

import pytest

from tests.support.chart_release import READY_S, WORKLOADS, Release

pytestmark = [pytest.mark.kafka, pytest.mark.redis]


@pytest.mark.faults
@pytest.mark.timeout(600)
def test_every_role_is_killed_and_rolled_under_load_and_every_effect_happens_once(release: Release) -> None:
    pods = {(name, number): pod for number in range(2) for name, pod in release.start_all().items()}
    runs: list[str] = []

    def load(count: int) -> None:
        for _ in range(count):
            runs.append(f"load-{len(runs)}")
            release.submit("clerk", "1 2 3", runs[-1])

    load(6)
    for name in WORKLOADS:
        pods[name, 0].kill()
        release.api = pods["api", 1]
        load(2)
        pods[name, 0] = release.node.start("Deployment", name)
        pods[name, 0].until_ready(READY_S)
    load(6)
    for (name, number), old in list(pods.items()):
        pods[name, number] = release.node.start("Deployment", name)
        pods[name, number].until_ready(READY_S)
        release.api = next(pods["api", other] for other in (1, 0) if pods["api", other] is not old)
        code, took_s = old.terminate()
        assert code == 0, f"{old.name} ended with {code} after {took_s:.1f} s: {old.said()}"
        load(1)
    release.until_ended(*runs)

    assert release.shop.made == {f"{run}.order-{number}": 1 for run in runs for number in (1, 2, 3)}
    release.command("verify", "--all", "--against", "redis")
    release.command("projections", "verify", "orders", "--load", "shop_agent.processor:Orders")
    assert {pod.name: pod.flaps for pod in release.node.pods if pod.flaps} == {}
