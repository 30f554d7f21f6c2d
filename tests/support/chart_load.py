"""Runs that go on while pods of a release are killed and rolled."""

from __future__ import annotations

from collections.abc import Sequence

from tests.support.chart_pods import Pod
from tests.support.chart_release import READY_S, Release

__all__ = ["Load", "Pods", "started"]

Pods = dict[tuple[str, int], Pod]
"""By workload and place."""


class Load:
    """Runs that are submitted while pods come and go. Each orders three times."""

    def __init__(self, release: Release, pods: Pods) -> None:
        self.runs: list[str] = []
        self._release = release
        self._pods = pods

    def more(self, count: int) -> None:
        for _ in range(count):
            self.runs.append(f"load-{len(self.runs)}")
            self._release.submit("clerk", "1 2 3", self.runs[-1])

    def kill_each(self, names: Sequence[str]) -> None:
        """One pod of each workload, by SIGKILL; another comes."""
        for name in names:
            self._pods[name, 0].kill()
            self._serve_not_from(self._pods[name, 0])
            self.more(2)
            self._pods[name, 0] = self._release.node.start("Deployment", name)
            self._pods[name, 0].until_ready(READY_S)

    def roll(self, names: Sequence[str]) -> None:
        """All pods of each workload, as a rolling update does: one more, and when it is ready an old one is stopped."""
        for name, number in [place for place in self._pods if place[0] in names]:
            old = self._pods[name, number]
            self._pods[name, number] = self._release.node.start("Deployment", name)
            self._pods[name, number].until_ready(READY_S)
            self._serve_not_from(old)
            code, took_s = old.terminate()
            assert code == 0, f"{old.name} ended with {code} after {took_s:.1f} s: {old.said()}"
            self.more(1)

    def _serve_not_from(self, gone: Pod) -> None:
        self._release.api = next(pod for (name, _), pod in self._pods.items() if name == "api" and pod is not gone)

    def happened_once(self) -> None:
        self._release.until_ended(*self.runs)
        made = {f"{run}.order-{number}": 1 for run in self.runs for number in (1, 2, 3)}
        assert self._release.shop.made == made
        self._release.command("verify", "--all", "--against", "redis")
        self._release.command("projections", "verify", "orders", "--load", "shop_agent.processor:Orders")
        assert {pod.name: pod.flaps for pod in self._release.node.pods if pod.flaps} == {}


def started(release: Release, count: int) -> Pods:
    """So many pods of each workload, all ready."""
    return {(name, number): pod for number in range(count) for name, pod in release.start_all().items()}
