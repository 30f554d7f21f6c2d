"""A release of the chart on a real Kafka and Redis, each pod a process: who starts, asks and looks."""

from __future__ import annotations

import json
import subprocess
import urllib.request
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.error import HTTPError

from tests.support.chart_pods import Node, Pod
from tests.support.charts import name_of, of_kind
from tests.support.kube_cluster import until
from tests.support.ledger import Ledger

__all__ = ["READY_S", "RUN_S", "Release", "values_of"]

READY_S: Final = 60.0
RUN_S: Final = 120.0
IMAGE: Final = "tracklog-example:0.1.0"


def values_of(kafka: str, prefix: str, shop_url: str) -> dict[str, Any]:
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

    def __init__(self, node: Node, shop: Ledger, shop_port: int, tokens: dict[str, str]) -> None:
        self.node = node
        self.shop = shop
        self.shop_port = shop_port
        self._tokens = tokens
        self.api: Pod

    @property
    def workloads(self) -> list[str]:
        """Names of the Deployments, without the release's."""
        return [name_of(one).removeprefix("demo-tracklog-") for one in of_kind(self.node.objects, "Deployment")]

    def start_all(self) -> dict[str, Pod]:
        """A pod of each workload, all ready."""
        pods = {name: self.node.start("Deployment", name) for name in self.workloads}
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

    def command(self, *words: str, at: str = "api") -> str:
        """A command in a pod of that workload, as with `kubectl exec`; the API's may read all topics."""
        env = self.exec_environment(at)
        done = subprocess.run(["tracklog", *words], env=env, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def exported(self) -> bool:
        """Whether the cold tier has each record of the events, at its place."""
        words = ("replay", "events", "--format", "jsonl")
        return self.command(*words, at="export") == self.command("--log", "cold:", *words, at="export")

    def exec_environment(self, at: str) -> dict[str, str]:
        pod = next(one for one in self.node.pods if f"-{at}#" in one.name and one.process.poll() is None)
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
