"""The chart, rendered in this process by Helm's own library, and its objects to look at."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml
from helm_python import Chart

__all__ = [
    "CHART",
    "EXAMPLES",
    "Object",
    "chart",
    "container",
    "environment",
    "example",
    "name_of",
    "named",
    "of_kind",
    "over",
    "pod_of",
    "rendered",
]

CHART: Final = Path(__file__).resolve().parent.parent.parent / "helm" / "tracklog"
EXAMPLES: Final = tuple(sorted(path.name.removesuffix("-values.yaml") for path in (CHART / "ci").glob("*-values.yaml")))

Object = dict[str, Any]


@cache
def chart() -> Chart:
    return Chart.load(CHART)


def example(name: str) -> dict[str, Any]:
    """The values of one of the example files, read afresh."""
    loaded = yaml.safe_load((CHART / "ci" / f"{name}-values.yaml").read_text(encoding="utf-8"))
    assert isinstance(loaded, dict)
    return loaded


def over(values: dict[str, Any], **dotted: object) -> dict[str, Any]:
    """Values with more of them set, by names whose dots are double underscores (`redis__url`)."""
    for name, value in dotted.items():
        *path, last = name.split("__")
        node = values
        for part in path:
            node = node.setdefault(part, {})
        node[last] = value
    return values


def rendered(values: Mapping[str, Any], *, name: str = "demo", namespace: str = "agents") -> list[Object]:
    """All objects that an install would make, hooks too. Raises what the chart refuses: HelmError."""
    files = chart().render(dict(values), name=name, namespace=namespace, is_install=True)
    manifests = [text for path, text in files.items() if not path.endswith("NOTES.txt")]
    return [one for text in manifests for one in yaml.safe_load_all(text) if one]


def of_kind(objects: Iterable[Object], kind: str) -> list[Object]:
    return [one for one in objects if one["kind"] == kind]


def name_of(one: Object) -> str:
    return str(one["metadata"]["name"])


def named(objects: Iterable[Object], kind: str, name: str) -> Object:
    """The one of that kind whose name ends so. AssertionError when it is not one."""
    found = [one for one in of_kind(objects, kind) if one["metadata"]["name"].endswith(name)]
    assert len(found) == 1, [one["metadata"]["name"] for one in of_kind(objects, kind)]
    return found[0]


def pod_of(workload: Object) -> Object:
    """What its pods are: of a Deployment, a Job or a Pod."""
    spec = workload["spec"] if workload["kind"] == "Pod" else workload["spec"]["template"]["spec"]
    assert isinstance(spec, dict)
    return spec


def container(workload: Object) -> Object:
    (only,) = pod_of(workload)["containers"]
    assert isinstance(only, dict)
    return only


def environment(workload: Object) -> dict[str, str]:
    return {one["name"]: one["value"] for one in container(workload)["env"] if "value" in one}
