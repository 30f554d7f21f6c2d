"""The topics in the words of those who make topics elsewhere: the Strimzi operator, Terraform."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from tracklog.schemas.topics import TopicSpec

__all__ = ["strimzi", "terraform"]


def strimzi(specs: Iterable[TopicSpec], cluster: str, namespace: str = "") -> str:
    """KafkaTopic objects in YAML, without a newline at the end. Helm leaves them when a release goes."""
    return "\n---\n".join("\n".join(_kafka_topic(spec, cluster, namespace)) for spec in specs)


def _kafka_topic(spec: TopicSpec, cluster: str, namespace: str) -> Iterator[str]:
    yield "apiVersion: kafka.strimzi.io/v1beta2"
    yield "kind: KafkaTopic"
    yield "metadata:"
    yield f"  name: {spec.name.replace('_', '-')}"
    if namespace:
        yield f"  namespace: {json.dumps(namespace)}"
    yield f"  labels: {{strimzi.io/cluster: {json.dumps(cluster)}}}"
    yield "  annotations: {helm.sh/resource-policy: keep}"
    yield "spec:"
    yield f"  topicName: {spec.name}"
    yield f"  partitions: {spec.partitions}"
    yield f"  replicas: {spec.replication_factor}"
    yield "  config:"
    yield from (f"    {name}: {json.dumps(value)}" for name, value in sorted(spec.config.items()))


def terraform(specs: Iterable[TopicSpec]) -> str:
    """`kafka_topic` resources in HCL, without a newline at the end. A plan that would destroy one fails."""
    return "\n\n".join("\n".join(_resource(spec)) for spec in specs)


def _resource(spec: TopicSpec) -> Iterator[str]:
    yield f'resource "kafka_topic" {json.dumps(spec.name.replace(".", "_").replace("-", "_"))} {{'
    yield f"  name               = {json.dumps(spec.name)}"
    yield f"  partitions         = {spec.partitions}"
    yield f"  replication_factor = {spec.replication_factor}"
    yield "  config = {"
    yield from (f"    {json.dumps(name)} = {json.dumps(value)}" for name, value in sorted(spec.config.items()))
    yield "  }"
    yield "  lifecycle {"
    yield "    prevent_destroy = true"
    yield "  }"
    yield "}"
