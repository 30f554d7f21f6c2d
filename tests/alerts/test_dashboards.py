"""The dashboards: as they are generated, over metrics that there are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from scripts.dashboards import DASHBOARDS, FOLDER, RATE, dashboard, queries
from tests.support.prometheus import promtool
from tracklog.infra.metrics_catalogue import CATALOGUE, Kind

_METRIC = re.compile(r"\btracklog_\w+")


@pytest.mark.parametrize("name", DASHBOARDS)
def test_a_dashboard_is_up_to_date(name: str) -> None:
    assert (FOLDER / f"{name}.json").read_text(encoding="utf-8") == dashboard(name), "run `make docs`"


def test_panels_ask_for_metrics_that_there_are_and_every_metric_is_on_a_panel() -> None:
    known = {one.name for one in CATALOGUE if one.kind is not Kind.HISTOGRAM}
    known |= {f"{one.name}_bucket" for one in CATALOGUE if one.kind is Kind.HISTOGRAM}
    asked = {name for _, _, expr in queries() for name in _METRIC.findall(expr)}
    assert asked - known == set()
    assert known - asked == {
        "tracklog_retention_left_seconds",  # alerts only: there are none where topics keep records for ever
        "tracklog_skipped_offsets_total",
        "tracklog_sample_failures_total",
    }


def test_prometheus_understands_every_query(tmp_path: Path) -> None:
    """As recording rules, which are read without any data."""
    asked = [expr.replace(RATE, "1m").replace("$namespace", ".*") for _, _, expr in queries()]
    made = [{"record": f"panel:{number}", "expr": expr} for number, expr in enumerate(asked)]
    path = tmp_path / "panels.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": made}]}), encoding="utf-8")
    assert f"{len(made)} rules found" in promtool("check", "rules", path)
