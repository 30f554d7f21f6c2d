"""The alert rules: each fires and clears when it should, judged by Prometheus' own tool, and has its page."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from scripts.alerts import FILES, defaults, names, rules
from tests.support.prometheus import promtool
from tracklog.infra.metrics_catalogue import CATALOGUE, Kind

ROOT = Path(__file__).resolve().parents[2]
CASES: list[dict[str, Any]] = yaml.safe_load((Path(__file__).parent / "cases.yaml").read_text(encoding="utf-8"))
ALERTS: list[dict[str, Any]] = yaml.safe_load(rules())["groups"][0]["rules"]
FROM_BROKERS = {"kafka_cluster_partition_underminisr"}
_METRIC = re.compile(r"\b(?:tracklog|kafka)_\w+")


@pytest.fixture
def rule_file(tmp_path: Path) -> Path:
    path = tmp_path / "alerts.yaml"
    path.write_text(rules(), encoding="utf-8")
    return path


def test_prometheus_takes_the_rules(rule_file: Path) -> None:
    assert f"SUCCESS: {len(ALERTS)} rules found" in promtool("check", "rules", rule_file)


def test_every_alert_fires_and_clears(rule_file: Path, tmp_path: Path) -> None:
    tests = [
        {
            "interval": "1m",
            "input_series": [{"series": name, "values": values} for name, values in case["series"].items()],
            "alert_rule_test": [_firing(case), *(_quiet(case, at) for at in case["quiet_at"])],
        }
        for case in CASES
    ]
    path = tmp_path / "tests.yaml"
    path.write_text(yaml.safe_dump({"rule_files": [rule_file.name], "tests": tests}), encoding="utf-8")
    assert "SUCCESS" in promtool("test", "rules", path)


def _firing(case: dict[str, Any]) -> dict[str, Any]:
    (rule,) = (one for one in ALERTS if one["alert"] == case["alert"])
    expected = {"exp_labels": {**case["labels"], **rule["labels"]}, "exp_annotations": _annotations(rule, case)}
    return {"eval_time": case["fires_at"], "alertname": case["alert"], "exp_alerts": [expected]}


def _quiet(case: dict[str, Any], at: str) -> dict[str, Any]:
    return {"eval_time": at, "alertname": case["alert"], "exp_alerts": []}


def _annotations(rule: dict[str, Any], case: dict[str, Any]) -> dict[str, str]:
    """As Prometheus fills them in. A value is the one that the case says last before it fires."""
    found = dict(rule["annotations"])
    found["summary"] = found["summary"].replace("{{ $value }}", str(case.get("value", _value(case))))
    for name, value in case["labels"].items():
        found["summary"] = found["summary"].replace("{{ $labels." + name + " }}", value)
    return found


def _value(case: dict[str, Any]) -> str:
    """The middle stretch of the first series."""
    first = next(iter(case["series"].values()))
    return str(first.split()[1].partition("x")[0])


def test_every_alert_has_a_test_and_a_page() -> None:
    assert sorted(one["alert"] for one in ALERTS) == sorted(case["alert"] for case in CASES)
    for rule in ALERTS:
        page = ROOT / rule["annotations"]["runbook_url"]
        assert f"`{rule['alert']}`" in page.read_text(encoding="utf-8"), page


def test_alerts_ask_for_metrics_that_there_are() -> None:
    known = {one.name for one in CATALOGUE if one.kind is not Kind.HISTOGRAM} | FROM_BROKERS
    asked = {name for rule in ALERTS for name in _METRIC.findall(rule["expr"])}
    assert asked - known == set()


def test_every_value_is_used_and_has_a_default() -> None:
    assert names() == set(defaults())
    assert "${" not in rules()
    assert (FILES / "alerts.yaml").exists()
