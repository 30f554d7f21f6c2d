"""Pods of two versions side by side under load: a schema with one more field, first read and then written, and a
projection anew. Going back is refused; done all the same, a run waits for a version that knows its events."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.chart_load import Load, Pods, started
from tests.support.chart_pods import ROOT
from tests.support.chart_release import READY_S, RUN_S, Release
from tests.support.kube_cluster import until
from tests.support.newer_version import CHANGED, newer
from tracklog.processors.trajectories import NAME, VERSION

pytestmark = [pytest.mark.kafka, pytest.mark.redis]


@pytest.mark.faults
@pytest.mark.timeout(600)
def test_versions_run_side_by_side_and_going_back_is_refused_or_safe(plain_release: Release, tmp_path: Path) -> None:
    release = plain_release
    pods = started(release, 1)
    load = Load(release, pods)
    load.more(3)

    # when a version is rolled out that reads what the next one writes, then one that writes it
    for folder, writes in (("reads", False), ("writes", True)):
        release.node.package = newer(tmp_path / folder, writes=writes)
        assert "this version reads all of it" in release.node.done("Job", "-upgrade-check", READY_S).said()
        load.roll(release.workloads)
        if not writes:
            switched = ("projections", "switch", NAME, "--version", str(VERSION + 1))
            release.command(*switched)
    load.more(3)

    # then every effect happened once, and all of it is sound
    load.happened_once()
    going_back_is_refused(release)
    gone_back_all_the_same(release, pods)


def going_back_is_refused(release: Release) -> None:
    release.node.package = ROOT
    check = release.node.start("Job", "-upgrade-check")
    assert check.process.wait(READY_S) == 1, check.said()
    assert f"are {CHANGED} of a version not known here" in check.said()
    assert f"refused: {NAME}: readers follow version {VERSION + 1}" in check.said()


def gone_back_all_the_same(release: Release, pods: Pods) -> None:
    """A worker of the older version finds an event that it does not know: it does nothing, and lets go of the run."""
    release.submit("clerk", "30", "late")
    (held,) = until(lambda: release.call("GET", "/approvals")["approvals"], RUN_S, "the large order waits")
    newest, worker = pods["agents-shop", 0], release.node.start("Deployment", "agents-shop")
    worker.until_ready(READY_S)
    newest.terminate()
    release.call("POST", f"/trajectories/late/calls/{held['call_id']}/decision", {"choice": "approve"}, who="ada")
    why = f"is a {CHANGED} of a version not known here"
    until(lambda: why in release.command("show", "late", "--from-log"), RUN_S, "the older worker says why it stops")
    assert not any(call.startswith("late.") for call in release.shop.made)

    worker.terminate()
    release.node.package = newest.package
    release.node.start("Deployment", "agents-shop").until_ready(READY_S)
    release.command("retry", "late")
    release.until_ended("late")
    assert release.shop.made["late.order-1"] == 1
