"""Writes docs/metrics.md from the catalogue of metrics; `--check` only says whether it is up to date."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from scripts.page import write_or_check
from tracklog.infra.metrics_catalogue import BOUNDED, CATALOGUE, OTHER, Metric

PAGE = Path(__file__).resolve().parent.parent / "docs" / "metrics.md"
HEAD = """\
# Metrics

Written by `scripts/metrics_doc.py` from `infra/tracklog/infra/metrics_catalogue.py`; change it there.

With `health.listen` set, every standing role (`tracklog worker`, `dispatch`, `route`, `process`, `serve`) serves these
at `/metrics` in Prometheus' text format, beside `/healthz` and `/readyz` ([operations](operations.md)). A role shows
what it knows of its own partitions, so a value of the whole installation is a sum (or a maximum) over all processes.

Counters of what happens in the log are counted by the process that folds the partition, from when it starts, and only
for records younger than `health.counted_age_s_max`: after a crash some may be counted twice, and a rebuild counts no
history. They are for rates and alerts; totals that must be right are in Redis (`tracklog watch`, the API).

Beside them there are `process_*` of the Prometheus client (memory, CPU, open files).
"""


def page() -> str:
    """The whole page as text."""
    return "\n".join([HEAD, *_table(), "", *_bounded()]) + "\n"


def _table() -> Iterator[str]:
    yield "| name | type | labels | role | meaning |\n| --- | --- | --- | --- | --- |"
    yield from map(_row, CATALOGUE)


def _row(metric: Metric) -> str:
    labels = ", ".join(f"`{label}`" for label in metric.labels)
    return f"| `{metric.name}` | {metric.kind} | {labels} | {metric.roles} | {metric.meaning} |"


def _bounded() -> Iterator[str]:
    said = ", ".join(f"`{label}` {most}" for label, most in BOUNDED.items())
    yield f"So many different values of a label one process shows, the rest is added up as `{OTHER}`: {said}."


if __name__ == "__main__":
    raise SystemExit(write_or_check(PAGE, page()))
