"""Values: a mistake is refused and its key named; schema, README and defaults are one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from helm_python import HelmError, lint

from scripts import chart_doc
from tests.support.charts import CHART, EXAMPLES, chart, example, over, rendered

MISTAKES: dict[str, tuple[str, dict[str, Any]]] = {
    "bootstrapserver": ("minimal", {"kafka__bootstrapserver": "kafka:9092"}),
    "kafka.bootstrapServers": ("minimal", {"kafka__bootstrapServers": ""}),
    "/kafka/bootstrapServers": ("minimal", {"kafka__bootstrapServers": "kafka"}),
    "redis.url": ("minimal", {"redis__url": "redis://user:hush@redis:6379"}),
    "/redis/url": ("minimal", {"redis__url": "http://redis:6379"}),
    "blobs.url": ("minimal", {"blobs__url": ""}),
    "/blobs/url": ("minimal", {"blobs__url": "var/lib/blobs"}),
    "/components/worker": ("minimal", {"components__worker__replica": 3}),
    "/components/route/replicas": ("minimal", {"components__route__replicas": "two"}),
    "components.route.replicas": ("minimal", {"components__route__replicas": 13}),
    "components.processors.autoscaling.maxReplicas": (
        "minimal",
        {"components__processors__autoscaling": {"kind": "hpa", "maxReplicas": 13, "metric": "m"}},
    ),
    "components.processors.autoscaling.prometheusAddress": (
        "minimal",
        {"components__processors__autoscaling": {"kind": "keda"}},
    ),
    "components.route.autoscaling.kind": (
        "minimal",
        {"components__route__autoscaling": {"kind": "hpa", "metric": "m"}},
    ),
    "components.route.pdb.minAvailable": ("minimal", {"components__route__pdb": {"minAvailable": 1}}),
    "components.route.strategy.maxUnavailable": ("minimal", {"components__route__strategy": {"maxSurge": 0}}),
    "/components/route/terminationGracePeriodSeconds": (
        "minimal",
        {"components__route__terminationGracePeriodSeconds": 5},
    ),
    "components.api.tokensSecret": ("minimal", {"components__api__enabled": True}),
    "components.export.settings": ("minimal", {"components__export__enabled": True}),
    "components.api.enabled": ("minimal", {"ingress__enabled": True}),
    "components.faust.enabled": ("minimal", {"components__faust__enabled": True}),
    "topics.minInsyncReplicas": ("minimal", {"topics__replicationFactor": 1}),
    "/topics/partitions": ("minimal", {"topics__partitions": 0}),
    "/topics/manage": ("minimal", {"topics__manage": "operator"}),
    "strimzi.cluster": ("minimal", {"topics__manage": "strimzi"}),
    "settings": ("minimal", {"settings": {"registry.password": "hush"}}),
    "defaults.settings": ("minimal", {"defaults__settings": {"topics.partitions": 6}}),
    "kafka.options": ("minimal", {"kafka__options": {"sasl.password": "hush"}}),
    "blobs.options": ("minimal", {"blobs__options": {"secret_access_key": "hush"}}),
    "kafka.sasl.existingSecret": ("minimal", {"kafka__sasl__mechanism": "PLAIN"}),
    "kafka.sasl.oauthToken": ("minimal", {"kafka__sasl__mechanism": "OAUTHBEARER"}),
    "/kafka/sasl/mechanism": ("minimal", {"kafka__sasl__mechanism": "SCRAM"}),
    "kafka.tls.enabled": ("minimal", {"kafka__tls__caSecret": "ca"}),
    "webhooks.existingSecret": ("minimal", {"webhooks__urls": ["https://chat.example"]}),
    "monitoring.serviceMonitor.enabled": ("strimzi", {"monitoring__serviceMonitor__enabled": True}),
    "/health/port": ("minimal", {"health__port": 99999}),
    "/image/digest": ("minimal", {"image__digest": "latest"}),
    "/agents/0": ("minimal", {"agents": [{"name": "travel", "image": "x:1", "module": "a:b"}]}),
    "/agents/0/modules/0": ("minimal", {"agents": [{"name": "travel", "image": "x:1", "modules": ["travel"]}]}),
    "agents[1].name": ("minimal", {"agents": [{"name": "a", "image": "x:1", "modules": ["a:b"]}] * 2}),
    "/extraProcessors/0/name": ("minimal", {"extraProcessors": [{"name": "Spend", "image": "x:1"}]}),
}
"""The key that a message names -> example values, and what is wrong with them then."""


@pytest.mark.parametrize("key", MISTAKES)
def test_a_mistake_is_refused_naming_its_key(key: str) -> None:
    name, wrong = MISTAKES[key]

    with pytest.raises(HelmError) as refused:
        rendered(over(example(name), **wrong))

    assert key in str(refused.value)
    assert "hush" not in str(refused.value)


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_linter_has_nothing_to_say_about_an_example(name: str) -> None:
    report = lint(CHART, example(name), strict=True)

    assert [one for one in report["messages"] if one["severity"] > 1] == []
    assert report["errors"] == []


def test_global_values_of_a_parent_chart_are_allowed() -> None:
    assert rendered(over(example("minimal"), **{"global": {"anything": True}}))


def test_the_schema_knows_the_keys_of_the_defaults_and_no_others() -> None:
    schema, values = chart().schema, chart().values
    assert schema is not None

    in_schema = set(keys_of_schema(schema, schema, ""))
    in_values = set(keys_of_values(values, ""))

    repeated = {f"components.{one}.{key}" for one in values["components"] for key in values["defaults"]}
    assert in_values - in_schema == set()
    assert {key for key in in_schema - in_values if not key.startswith(tuple(repeated))} == {"global"}


def test_no_part_of_the_schema_lets_an_unknown_key_of_ours_through() -> None:
    schema = chart().schema
    assert schema is not None

    assert list(open_parts(schema, "")) == []


def test_the_table_of_values_is_up_to_date() -> None:
    assert chart_doc.PAGE.read_text(encoding="utf-8") == chart_doc.page(), "run make docs"


def keys_of_schema(node: dict[str, Any], root: dict[str, Any], before: str) -> Iterator[str]:
    while "$ref" in node:
        target: Any = root
        for part in node["$ref"].removeprefix("#/").split("/"):
            target = target[part]
        node = target
    for name, child in node.get("properties", {}).items():
        yield f"{before}{name}"
        yield from keys_of_schema(child, root, f"{before}{name}.")


def keys_of_values(node: object, before: str) -> Iterator[str]:
    described_whole = ("resources", "secretKeys", "labels")
    if isinstance(node, dict):
        for name, child in node.items():
            yield f"{before}{name}"
            if name not in described_whole:
                yield from keys_of_values(child, f"{before}{name}.")


def open_parts(node: object, at: str) -> Iterator[str]:
    if isinstance(node, dict):
        if (
            "properties" in node
            and isinstance(node["properties"], dict)
            and node.get("additionalProperties") is not False
        ):
            yield at
        for name, child in node.items():
            yield from open_parts(child, f"{at}/{name}")
