"""Pods of the chart are killed and rolled while runs go on, each role; every effect happens once, no event is lost."""

from __future__ import annotations

import pytest

from tests.support.chart_load import Load, started
from tests.support.chart_release import RUN_S, Release
from tests.support.kube_cluster import until

pytestmark = [pytest.mark.kafka, pytest.mark.redis]


@pytest.mark.faults
@pytest.mark.timeout(600)
def test_every_role_is_killed_and_rolled_under_load_and_every_effect_happens_once(release: Release) -> None:
    load = Load(release, started(release, 2))
    load.more(6)
    load.kill_each(release.workloads)
    load.more(6)
    load.roll(release.workloads)
    load.happened_once()
    until(release.exported, RUN_S, "every event is in the cold tier")
    release.command("cold", "verify", at="export")


@pytest.mark.faults
@pytest.mark.timeout(400)
def test_the_processors_in_faust_are_killed_and_rolled_under_load_and_the_views_are_whole(
    faust_release: Release,
) -> None:
    load = Load(faust_release, started(faust_release, 2))
    load.more(4)
    load.kill_each(["faust"])
    load.more(4)
    load.roll(["faust"])
    load.happened_once()
