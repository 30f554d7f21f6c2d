"""`tracklog topics render`, and what the chart makes of the same values: the same topics."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from tests.support.charts import example, of_kind, over, rendered
from tracklog.consumers.cli.app import app

runner = CliRunner()


def render(tmp_path: Path, *words: str) -> str:
    done = runner.invoke(app, ["topics", "render", *words, "--set", f"home={tmp_path}"])
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.mark.parametrize(("replicas", "in_sync"), [(3, 2), (1, 1)])
def test_the_chart_and_the_command_make_the_same_topics(tmp_path: Path, replicas: int, in_sync: int) -> None:
    topics = {"manage": "strimzi", "partitions": 24, "replicationFactor": replicas, "minInsyncReplicas": in_sync}
    of_chart = of_kind(rendered(over(example("strimzi"), topics=topics, prefix="my_log")), "KafkaTopic")
    settings = {"partitions": 24, "replication_factor": replicas, "min_insync_replicas": in_sync}
    given = [word for name, value in settings.items() for word in ("--set", f"topics.{name}={value}")]

    text = render(tmp_path, "--format", "strimzi", "--cluster", "main", "--prefix", "my_log", *given)
    of_command = list(yaml.safe_load_all(text))

    assert [one["spec"] for one in of_command] == [one["spec"] for one in of_chart]
    assert [one["metadata"]["name"] for one in of_command] == [one["metadata"]["name"] for one in of_chart]
    assert {one["metadata"]["labels"]["strimzi.io/cluster"] for one in (*of_command, *of_chart)} == {"main"}
    assert {one["metadata"]["annotations"]["helm.sh/resource-policy"] for one in (*of_command, *of_chart)} == {"keep"}


def test_terraform_is_told_to_destroy_none(tmp_path: Path) -> None:
    text = render(tmp_path, "--format", "terraform")

    assert text.count('resource "kafka_topic" "tracklog_') == 5
    assert text.count("prevent_destroy = true") == 5
    assert '"min.insync.replicas" = "2"' in text, "as on a Kafka, though the log of this call is a file"


def test_json_has_the_same_specs(tmp_path: Path) -> None:
    specs = json.loads(render(tmp_path, "--format", "terraform", "--json"))

    assert specs[0]["name"] == "tracklog.events"
    assert {one["replication_factor"] for one in specs} == {3}


def test_strimzi_needs_the_name_of_a_cluster() -> None:
    done = runner.invoke(app, ["topics", "render", "--format", "strimzi"])

    assert done.exit_code == 2
    assert "--cluster" in done.stderr
