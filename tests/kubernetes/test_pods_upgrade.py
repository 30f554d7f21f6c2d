"""Pods of two versions side by side under load: a schema with one more field, first read and then written, and a
projection anew. Going back is refused before anything is changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.chart_load import Load, started
from tests.support.chart_pods import ROOT
from tests.support.chart_release import READY_S, Release
from tests.support.newer_version import CHANGED, newer
from tracklog.processors.trajectories import NAME, VERSION

pytestmark = [pytest.mark.kafka, pytest.mark.redis]


@pytest.mark.faults
@pytest.mark.timeout(600)
def test_versions_run_side_by_side_and_going_back_is_refused(plain_release: Release, tmp_path: Path) -> None:
    release = plain_release
    load = Load(release, started(release, 1))
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


def going_back_is_refused(release: Release) -> None:
    release.node.package = ROOT
    check = release.node.start("Job", "-upgrade-check")
    assert check.process.wait(READY_S) == 1, check.said()
    assert f"are {CHANGED} of a version not known here" in check.said()
    assert f"refused: {NAME}: readers follow version {VERSION + 1}" in check.said()
