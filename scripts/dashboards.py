"""Writes the Grafana dashboards of the chart: an overview, and one for each role; `--check` only compares."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from scripts.alerts import FILES
from scripts.page import write_or_check

FOLDER = FILES / "dashboards"
WIDTH, HEIGHT, ACROSS = 8, 8, 3
RATE = "$__rate_interval"
BY = 'namespace=~"$namespace"'


class Panel(NamedTuple):
    """`unit` as Grafana names it; `legend` by the labels of a series."""

    title: str
    expr: str
    unit: str = "short"
    legend: str = ""


def rate(metric: str, by: str) -> str:
    return f"sum by ({by}) (rate({metric}{{{BY}}}[{RATE}]))"


def total(metric: str, by: str = "namespace") -> str:
    return f"sum by ({by}) ({metric}{{{BY}}})"


def worst(metric: str, by: str) -> str:
    return f"max by ({by}) ({metric}{{{BY}}})"


def quantile(share: float, metric: str, by: str = "") -> str:
    labels = f"le, {by}" if by else "le"
    return f"histogram_quantile({share}, sum by ({labels}) (rate({metric}_bucket{{{BY}}}[{RATE}])))"


def of_loop(processors: str) -> tuple[Panel, ...]:
    """What every role that owns partitions has. `processors`: a pattern of the label."""
    where = f'{BY}, processor=~"{processors}"'
    return (
        Panel("Behind, by time", f"max by (processor, topic) (tracklog_lag_seconds{{{where}}})", "s", "{{processor}}"),
        Panel(
            "Behind, by records", f"sum by (processor, topic) (tracklog_lag_records{{{where}}})", "short", "{{topic}}"
        ),
        Panel(
            "Partitions owned", f"sum by (processor) (tracklog_partitions_owned{{{where}}})", "short", "{{processor}}"
        ),
        Panel(
            "Since the last poll", f"max by (processor) (tracklog_poll_age_seconds{{{where}}})", "s", "{{processor}}"
        ),
        Panel("Waits for Kafka or Redis", f"max by (processor) (tracklog_outage{{{where}}})", "bool", "{{processor}}"),
    )


def of_process(role: str) -> tuple[Panel, ...]:
    join = f'* on (instance, job) group_left (role) tracklog_info{{{BY}, role="{role}"}}'
    return (
        Panel("Memory", f"max by (instance) (process_resident_memory_bytes{{{BY}}} {join})", "bytes", "{{instance}}"),
        Panel(
            "CPU",
            f"sum by (instance) (rate(process_cpu_seconds_total{{{BY}}}[{RATE}]) {join})",
            "short",
            "{{instance}}",
        ),
    )


OVERVIEW = (
    Panel("Calls in doubt", total("tracklog_calls_in_doubt")),
    Panel("Approvals open", total("tracklog_approvals_open")),
    Panel("Runs that do not move", total("tracklog_runs_stuck")),
    Panel("Trajectories", total("tracklog_trajectories", "status"), "short", "{{status}}"),
    Panel("Begun and ended", rate("tracklog_trajectories_ended_total", "ending"), "ops", "{{ending}}"),
    Panel("Runnable backlog", total("tracklog_worker_runnable")),
    Panel("Records by verdict", rate("tracklog_records_total", "verdict"), "ops", "{{verdict}}"),
    Panel("Behind, by time", worst("tracklog_lag_seconds", "processor"), "s", "{{processor}}"),
    Panel("What is shown is old by", worst("tracklog_projection_age_seconds", "processor"), "s", "{{processor}}"),
    Panel("Dollars an hour", f"3600 * {rate('tracklog_model_cost_usd_total', 'model')}", "currencyUSD", "{{model}}"),
    Panel("Tokens", rate("tracklog_model_tokens_total", "direction"), "ops", "{{direction}}"),
    Panel("Tool calls", rate("tracklog_tool_calls_total", "status"), "ops", "{{status}}"),
    Panel("Processes", f"count by (role) (tracklog_info{{{BY}}})", "short", "{{role}}"),
    Panel("Waits for Kafka or Redis", worst("tracklog_outage", "processor"), "bool", "{{processor}}"),
    Panel("Refused records", rate("tracklog_refused_records_total", "verdict"), "ops", "{{verdict}}"),
)
PROCESS = (
    Panel("Records", rate("tracklog_records_total", "type"), "ops", "{{type}}"),
    Panel("Refused records", rate("tracklog_refused_records_total", "verdict"), "ops", "{{verdict}}"),
    Panel("Quarantined records", rate("tracklog_quarantined_records_total", "namespace"), "ops"),
    Panel("What is shown is old by", worst("tracklog_projection_age_seconds", "processor"), "s", "{{processor}}"),
    Panel("Parked trajectories", total("tracklog_parked_trajectories", "processor"), "short", "{{processor}}"),
    Panel("Calls in doubt", total("tracklog_calls_in_doubt")),
    Panel("The oldest of them", worst("tracklog_calls_in_doubt_oldest_seconds", "namespace"), "s"),
    Panel("Runs that do not move", total("tracklog_runs_stuck")),
    Panel("Runs that go round in circles", total("tracklog_runs_looping")),
    Panel("Begun", rate("tracklog_trajectories_started_total", "driver"), "ops", "{{driver}}"),
    Panel("Model calls", rate("tracklog_model_calls_total", "tenant, model"), "ops", "{{tenant}} {{model}}"),
    Panel("Tokens", rate("tracklog_model_tokens_total", "tenant, direction"), "ops", "{{tenant}} {{direction}}"),
    Panel("Model latency, p95", quantile(0.95, "tracklog_model_seconds", "model"), "s", "{{model}}"),
    Panel("Tool calls", rate("tracklog_tool_calls_total", "tool, status"), "ops", "{{tool}} {{status}}"),
    Panel("Tool latency, p95", quantile(0.95, "tracklog_tool_seconds", "tool"), "s", "{{tool}}"),
    *of_loop(".*"),
    *of_process("process"),
)
WORKER = (
    Panel("Runnable backlog", total("tracklog_worker_runnable")),
    Panel("Worked on", total("tracklog_worker_running")),
    Panel("Room", total("tracklog_worker_running_max")),
    Panel("Known trajectories", total("tracklog_worker_known")),
    Panel("Barrier, p50", quantile(0.5, "tracklog_barrier_seconds"), "s"),
    Panel("Barrier, p99", quantile(0.99, "tracklog_barrier_seconds"), "s"),
    *of_loop("worker"),
    *of_process("worker"),
)
DISPATCH = (
    Panel("Open calls", total("tracklog_dispatch_calls_open")),
    Panel("Slots that they have taken", total("tracklog_dispatch_slots")),
    Panel("Paused tools", worst("tracklog_dispatch_tools_paused", "namespace")),
    Panel("Knows which are paused", f"min by (namespace) (tracklog_dispatch_pauses_known{{{BY}}})", "bool"),
    *of_loop("dispatch"),
    *of_process("dispatch"),
)
ROUTE = (
    Panel("Approvals open", total("tracklog_approvals_open")),
    Panel("The oldest of them", worst("tracklog_approvals_oldest_seconds", "namespace"), "s"),
    Panel("Overdue", total("tracklog_approvals_overdue")),
    Panel("Escalations open", total("tracklog_escalations_open")),
    Panel("Timers open", total("tracklog_timers_open")),
    Panel("Timers late", worst("tracklog_timers_late_seconds", "namespace"), "s"),
    Panel("Posted", rate("tracklog_routed_total", "kind"), "ops", "{{kind}}"),
    Panel("Messages to post", total("tracklog_outbox_open")),
    Panel("Webhooks", rate("tracklog_webhooks_total", "result"), "ops", "{{result}}"),
    Panel("Webhooks being told", total("tracklog_webhooks_telling")),
    *of_loop("route"),
    *of_process("route"),
)
EXPORT = (
    Panel("Rows committed", rate("tracklog_exported_total", "kind"), "ops", "{{kind}}"),
    Panel("Commits", rate("tracklog_export_commits_total", "namespace"), "ops"),
    Panel("Conflicts", rate("tracklog_export_conflicts_total", "namespace"), "ops"),
    Panel("Rows waiting", total("tracklog_export_rows_waiting")),
    Panel("From append to durable", worst("tracklog_export_durable_seconds", "namespace"), "s"),
    Panel("Lost before export, offsets", worst("tracklog_export_gap_offsets", "namespace")),
    Panel("Blobs lost", total("tracklog_export_blobs_lost_total")),
    *of_loop("export"),
    *of_process("export"),
)
SERVE = (
    Panel("Requests", rate("tracklog_api_requests_total", "route"), "ops", "{{route}}"),
    Panel("Answers", rate("tracklog_api_requests_total", "status"), "ops", "{{status}}"),
    Panel("Latency, p95", quantile(0.95, "tracklog_api_request_seconds", "route"), "s", "{{route}}"),
    Panel("Streams", total("tracklog_api_streams_open")),
    Panel("What is shown is old by", worst("tracklog_projection_age_seconds", "processor"), "s", "{{processor}}"),
    *of_process("serve"),
)
DASHBOARDS: dict[str, tuple[str, tuple[Panel, ...]]] = {
    "overview": ("Tracklog", OVERVIEW),
    "process": ("Tracklog: process", PROCESS),
    "worker": ("Tracklog: worker", WORKER),
    "dispatch": ("Tracklog: dispatch", DISPATCH),
    "route": ("Tracklog: route", ROUTE),
    "export": ("Tracklog: export", EXPORT),
    "serve": ("Tracklog: serve", SERVE),
}


def queries() -> Iterator[tuple[str, str, str]]:
    """Dashboard, title and query of every panel."""
    for name, (_, panels) in DASHBOARDS.items():
        yield from ((name, panel.title, panel.expr) for panel in panels)


def dashboard(name: str) -> str:
    """As Grafana takes it in, with a choice of data source and namespace."""
    title, panels = DASHBOARDS[name]
    made = {
        "uid": f"tracklog-{name}",
        "title": title,
        "tags": ["tracklog"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {"list": [_data_source(), _namespace()]},
        "panels": [_panel(number, panel) for number, panel in enumerate(panels)],
    }
    return json.dumps(made, indent=1, ensure_ascii=False) + "\n"


def _data_source() -> dict[str, Any]:
    return {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}


def _namespace() -> dict[str, Any]:
    """Where there are no namespaces, All takes in the series without one too."""
    return {
        "name": "namespace",
        "label": "Namespace",
        "type": "query",
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "query": {"query": "label_values(tracklog_info, namespace)", "refId": "namespace"},
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
        "refresh": 2,
    }


def _panel(number: int, panel: Panel) -> dict[str, Any]:
    source = {"type": "prometheus", "uid": "${datasource}"}
    row, column = divmod(number, ACROSS)
    return {
        "id": number + 1,
        "title": panel.title,
        "type": "timeseries",
        "datasource": source,
        "gridPos": {"x": column * WIDTH, "y": row * HEIGHT, "w": WIDTH, "h": HEIGHT},
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}},
        "targets": [{"refId": "A", "datasource": source, "expr": panel.expr, "legendFormat": panel.legend or "__auto"}],
    }


def main(names: Sequence[str] = tuple(DASHBOARDS)) -> int:
    FOLDER.mkdir(parents=True, exist_ok=True)
    return max(write_or_check(FOLDER / f"{name}.json", dashboard(name)) for name in names)


if __name__ == "__main__":
    sys.exit(main())
