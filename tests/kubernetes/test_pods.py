"""Pods of the chart run: their very commands, variables and files, on a Kafka and a Redis that ask who somebody is."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.support.chart_pods import Pod
from tests.support.chart_release import READY_S, RUN_S, Release
from tests.support.chart_secured import Guarded
from tests.support.charts import named
from tests.support.egress import Peer, Sockets, lets_reach
from tests.support.kube_cluster import until

pytestmark = [pytest.mark.kafka, pytest.mark.redis]


@pytest.mark.timeout(240)
def test_one_run_goes_through_all_roles_and_each_stops_when_it_is_told_to(release: Release, services: Guarded) -> None:
    again = release.node.done("Job", "-topics", READY_S)
    assert "created" not in again.said(), "the hook of an upgrade finds its topics"
    assert "this version reads all of it" in release.node.done("Job", "-upgrade-check", READY_S).said()
    with Sockets(lambda: [pod.process.pid for pod in release.node.pods]).watched() as sockets:
        release.shop.moment = lambda _: sockets.look()  # who orders stays connected until that was seen
        pods = release.start_all()
        goes_through_all_roles(release)
        sockets.look()
    release.node.done("Pod", "-selftest", READY_S)
    release.command("verify", "--all", "--against", "redis")
    release.command("projections", "verify", "orders", "--load", "shop_agent.processor:Orders")
    until(release.exported, RUN_S, "every event is in the cold tier")
    release.command("cold", "verify", at="export")
    assert {pod.name: pod.flaps for pod in pods.values() if pod.flaps} == {}
    reaches_what_its_policy_lets_it_reach(release, services, pods, sockets.reached)
    all_stop(pods)


def goes_through_all_roles(release: Release) -> None:
    release.submit("clerk", "2 30", "shop-1")
    release.submit("night", "1", "night-1")
    held = until(lambda: release.call("GET", "/approvals")["approvals"], RUN_S, "the large order waits for a person")
    assert release.shop.made == {"shop-1.order-1": 1}
    release.call("POST", f"/trajectories/shop-1/calls/{held[0]['call_id']}/decision", {"choice": "approve"}, who="ada")
    release.until_ended("shop-1", "night-1")
    assert release.shop.made == {"shop-1.order-1": 1, "shop-1.order-2": 1}


def reaches_what_its_policy_lets_it_reach(
    release: Release, services: Guarded, pods: Mapping[str, Pod], reached: Mapping[int, set[Peer]]
) -> None:
    kafka, store, shop = services.kafka_port, services.store_port, release.shop_port
    expected = {name: {kafka, services.redis_port, store} for name in pods}
    expected["tools-shop"].add(shop)
    for name, pod in pods.items():
        peers = reached[pod.process.pid]
        labels = named(release.node.objects, "Deployment", name)["spec"]["template"]["metadata"]["labels"]
        refused = {peer for peer in peers if not lets_reach(release.node.objects, labels, peer)}
        assert refused == set(), f"{name} connects to what its policy keeps from it"
        assert {port for _, port in peers} <= expected[name], name
        assert lets_reach(release.node.objects, labels, ("127.0.0.1", shop)) == (name == "tools-shop"), name
        assert kafka in {port for _, port in peers}, name
    assert shop in {port for _, port in reached[pods["tools-shop"].process.pid]}


def all_stop(pods: Mapping[str, Pod]) -> None:
    for name, pod in pods.items():
        print(f"{name}: ready after {pod.became_ready_s:.1f} s, {pod.resident_mib():.0f} MiB")  # noqa: T201 - measured
        assert pod.resident_mib() < pod.requested_mib, name
    for name, pod in pods.items():
        code, took_s = pod.terminate()
        assert code == 0, f"{name}: {pod.said()}"
        assert took_s < pod.grace_s
