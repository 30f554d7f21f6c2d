"""The chart's alert rules with values in them, as Prometheus reads them: `python -m scripts.alerts [NAME=VALUE]...`"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path

import yaml

CHART = Path(__file__).resolve().parent.parent / "helm" / "tracklog"
FILES = CHART / "files"
_NAME = re.compile(r"\$\{(\w+)\}")


def defaults() -> dict[str, str]:
    """The values that the chart gives where nobody else does."""
    given = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    return {name: str(value) for name, value in given["monitoring"]["prometheusRule"]["values"].items()}


def rules(values: Mapping[str, str] | None = None) -> str:
    """The rule file. Raises KeyError for a name that has no value."""
    chosen = {**defaults(), **(values or {})}
    text = (FILES / "alerts.yaml").read_text(encoding="utf-8")
    return _NAME.sub(lambda found: chosen[found[1]], text)


def names() -> set[str]:
    """All that the rules ask a value of."""
    return set(_NAME.findall((FILES / "alerts.yaml").read_text(encoding="utf-8"))) - {""}


if __name__ == "__main__":
    sys.stdout.write(rules(dict(one.split("=", 1) for one in sys.argv[1:])))
