"""The chart before the tools that others judge charts by: schemas of Kubernetes, kube-score, helm-unittest."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.support.charts import CHART, EXAMPLES
from tests.support.kube_tools import tool, tool_done, write_schemas

NOT_SCORED = (
    "container-image-pull-policy",  # a tag of a version does not move; asking at each start ties it to the registry
    "container-cpu-limit",  # a limit stops a partition loop in the middle of its batch; requests share out the node
)


def manifests(name: str) -> str:
    done = tool_done("helm", "template", "demo", str(CHART), "-n", "agents", "-f", f"{CHART}/ci/{name}-values.yaml")
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_object_is_one_that_kubernetes_and_the_operators_take(name: str, tmp_path: Path) -> None:
    built_in = Path(tool("kubeconform")).parent / "schemas"
    locations = (
        f"{built_in}{{{{if .StrictSuffix}}}}/strict{{{{end}}}}/{{{{.ResourceKind}}}}{{{{.KindSuffix}}}}.json",
        write_schemas(tmp_path / "schemas"),
    )
    given = [word for one in locations for word in ("-schema-location", one)]

    done = tool_done("kubeconform", "-strict", "-summary", *given, "-", stdin=manifests(name))

    assert done.returncode == 0, done.stdout + done.stderr
    assert "Invalid: 0, Errors: 0, Skipped: 0" in done.stdout


@pytest.mark.parametrize("name", EXAMPLES)
def test_kube_score_finds_nothing_critical(name: str) -> None:
    ignored = [word for one in NOT_SCORED for word in ("--ignore-test", one)]

    done = tool_done(
        "kube-score", "score", "--ignore-container-cpu-limit", *ignored, "-o", "ci", "-", stdin=manifests(name)
    )

    assert [line for line in done.stdout.splitlines() if line.startswith("[CRITICAL]")] == []
    assert "[OK]" in done.stdout


@pytest.mark.parametrize("name", EXAMPLES)
def test_helm_itself_lints_each_example(name: str) -> None:
    done = tool_done("helm", "lint", "--strict", str(CHART), "-f", f"{CHART}/ci/{name}-values.yaml")

    assert done.returncode == 0, done.stdout


def test_the_charts_own_suites_pass() -> None:
    done = tool_done("helm-unittest", str(CHART))

    assert done.returncode == 0, done.stdout[-6000:]


def test_every_template_has_a_suite() -> None:
    named = {
        template
        for path in (CHART / "tests").glob("*_test.yaml")
        for template in yaml.safe_load(path.read_text(encoding="utf-8"))["templates"]
    }
    there = {
        str(path.relative_to(CHART / "templates"))
        for path in (CHART / "templates").rglob("*")
        if path.suffix in (".yaml", ".txt")
    }

    assert there - named == set()
