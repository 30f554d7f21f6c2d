"""Pods of the chart run: their very commands, variables and files, on a real Kafka and Redis, probed as on a node."""

from __future__ import annotations

import json
import subprocess
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.error import HTTPError

import pytest

from tests.support.chart_pods import Node, Pod
from tests.support.kube_cluster import until
from tests.support.ledger import Ledger, ledger
from tracklog.consumers.api.tokens import hash_of, new_token
from tracklog.infra.clock import SystemEntropy

pytestmark = [pytest.mark.kafka, pytest.mark.redis]

READY_S: Final = 60.0
RUN_S: Final = 120.0
IMAGE: Final = "tracklog-example:0.1.0"
WORKLOADS: Final = ("agents-shop", "tools-shop", "processors", "processor-orders", "route", "api")


def values_of(kafka: str, redis: str, prefix: str, shop_url: str) -> dict[str, Any]:
    """A release with every role on plain services, one broker, and quick groups."""
    shop = {"env": [{"name": "SHOP_URL", "value": shop_url}], "image": IMAGE, "name": "shop"}
    return {
        "prefix": prefix,
        "kafka": {
            "bootstrapServers": kafka,
            "options": {"group.protocol": "classic", "session.timeout.ms": "6000", "heartbeat.interval.ms": "1000"},
        },
        "redis": {"existingSecret": "redis", "urlKey": "url"},
        "blobs": {"existingClaim": "blobs"},
        "topics": {"partitions": 3, "replicationFactor": 1, "minInsyncReplicas": 1},
        "agents": [{**shop, "modules": ["shop_agent.agents:clerk", "shop_agent.agents:night"]}],
        "tools": [{**shop, "modules": ["shop_agent.agents"], "settings": {"dispatch.grace_s": 15}}],
        "extraProcessors": [{"name": "orders", "image": IMAGE, "module": "shop_agent.processor:Orders"}],
        "components": {"api": {"enabled": True, "tokensSecret": "api-tokens"}},
    }


class Release:
    """A node, the shop that counts effects, and two people who ask and decide through the API."""

    def __init__(self, node: Node, shop: Ledger, tokens: dict[str, str]) -> None:
        self.node = node
        self.shop = shop
        self._tokens = tokens
        self.api: Pod

    def start_all(self) -> dict[str, Pod]:
        pods = {name: self.node.start("Deployment", name) for name in WORKLOADS}
        for pod in pods.values():
            pod.until_ready(READY_S)
        self.api = pods["api"]
        return pods

    def call(self, method: str, path: str, body: object = None, *, who: str = "mo") -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {self._tokens[who]}", "Content-Type": "application/json"}
        request = urllib.request.Request(f"http://{self.api.address}:8080{path}", data, headers, method=method)
        with urllib.request.urlopen(request, timeout=20) as answer:
            return json.load(answer)

    def command(self, *words: str) -> str:
        """A command in the pod of the router, as with `kubectl exec`."""
        env = self.exec_environment()
        done = subprocess.run(["tracklog", *words], env=env, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def exec_environment(self) -> dict[str, str]:
        pod = next(one for one in self.node.pods if "route" in one.name and one.process.poll() is None)
        raw = Path(f"/proc/{pod.process.pid}/environ").read_bytes().split(b"\0")
        return dict(one.decode().split("=", 1) for one in raw if one)

    def submit(self, agent: str, task: str, run: str) -> None:
        self.call("PUT", f"/trajectories/{run}/task", {"agent": agent, "task": task})

    def ended(self, run: str) -> bool:
        try:
            return bool(self.call("GET", f"/trajectories/{run}")["status"] == "completed")
        except HTTPError as error:
            if error.code != 404:  # not folded yet
                raise
            return False

    def until_ended(self, *runs: str) -> None:
        for run in runs:
            until(partial(self.ended, run), RUN_S, f"{run} has ended")


@pytest.fixture
def release(kafka_bootstrap: str, redis_db: str, fresh_prefix: str, tmp_path: Path) -> Iterator[Release]:
    tokens = {name: new_token(SystemEntropy()) for name in ("ada", "mo")}
    entries = [
        f'[{name}]\nperson = "{name}"\nhash = "{hash_of(token)}"\nroles = ["approver", "operator"]\ntenants = ["*"]\n'
        for name, token in tokens.items()
    ]
    secrets = {"redis": {"url": redis_db}, "api-tokens": {"tokens.toml": "".join(entries)}}
    with ledger() as (shop, url):
        node = Node(values_of(kafka_bootstrap, redis_db, fresh_prefix, url), tmp_path, secrets)
        with node.running():
            node.done("Job", "-topics", READY_S)
            yield Release(node, shop, tokens)


@pytest.mark.timeout(240)
def test_one_run_goes_through_all_roles_and_each_stops_when_it_is_told_to(release: Release) -> None:
    again = release.node.done("Job", "-topics", READY_S)
    assert "created" not in again.said(), "the hook of an upgrade finds its topics"
    pods = release.start_all()
    slowest_s = max(pod.became_ready_s or READY_S for pod in pods.values())

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
        code, took_s = pod.terminate()
        assert code == 0, f"{name}: {pod.said()}"
        assert took_s < pod.grace_s
    assert slowest_s < READY_S


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
