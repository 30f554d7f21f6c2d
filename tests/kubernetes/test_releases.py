"""Releases on a real API server: installed, upgraded, rolled back, taken away; what is wrong is seen at once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.charts import CHART, EXAMPLES, Object, example, of_kind, over, pod_of, rendered
from tests.support.kube_cluster import Cluster, cluster_in, until
from tests.support.kube_tools import CRDS, tool_done
from tests.support.kubelet import kubelet

pytestmark = [pytest.mark.timeout(400), pytest.mark.xdist_group("cluster")]

WAIT_S = 60.0
GROUP_S = 30.0
QUICK = ("minimal", "strimzi")
"""The others are installed by `make test-kubernetes`."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster_in(tmp_path_factory.mktemp("cluster")) as made, kubelet(made.api):
        for crd in yaml.safe_load_all(CRDS.read_text(encoding="utf-8")):
            path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
            made.api.call("POST", path, crd)
            group = f"/apis/{crd['spec']['group']}/{crd['spec']['versions'][0]['name']}"
            plural = f"{group}/{crd['spec']['names']['plural']}"
            until(partial(made.api.call, "GET", plural), GROUP_S, f"{plural} is served")
        made.api.call(
            "POST",
            "/apis/scheduling.k8s.io/v1/priorityclasses",
            {"metadata": {"name": "agents"}, "value": 1000},
        )
        yield made


def helm(cluster: Cluster, namespace: str, *words: str) -> str:
    """What Helm says; AssertionError unless it ends well."""
    done = tool_done("helm", *words, "-n", namespace, environ={"KUBECONFIG": str(cluster.kubeconfig)}, bound_s=180)
    assert done.returncode == 0, done.stderr
    return done.stdout


def refused(cluster: Cluster, namespace: str, *words: str) -> str:
    """What Helm says against it; AssertionError when it ends well."""
    done = tool_done("helm", *words, "-n", namespace, environ={"KUBECONFIG": str(cluster.kubeconfig)}, bound_s=180)
    assert done.returncode != 0, done.stdout
    return done.stderr


def prepared(cluster: Cluster, name: str, values: dict[str, Any]) -> tuple[str, set[tuple[str, str]]]:
    """A namespace with the Secrets and the claim that the values name; their kinds and names."""
    namespace = f"of-{name}"
    cluster.api.namespace(namespace)
    wanted: dict[str, set[str]] = {}
    objects = rendered(values, name="demo", namespace=namespace)
    for workload in objects:
        if workload["kind"] in ("Deployment", "Job", "Pod"):
            for secret, keys in secrets_of(workload):
                wanted.setdefault(secret, set()).update(keys)
    for secret, keys in wanted.items():
        cluster.api.secret(namespace, secret, dict.fromkeys(keys, "word"))
    claim = values.get("blobs", {}).get("existingClaim")
    if claim:
        bind_claim(cluster, namespace, claim)
    there = {("Secret", secret) for secret in wanted}
    return namespace, there | ({("PersistentVolumeClaim", claim)} if claim else set())


def secrets_of(workload: Object) -> Iterator[tuple[str, set[str]]]:
    for volume in pod_of(workload)["volumes"]:
        sources = [volume["secret"] | {"name": volume["secret"]["secretName"]}] if "secret" in volume else []
        sources += [one["secret"] for one in volume.get("projected", {}).get("sources") or []]
        yield from ((one["name"], {item["key"] for item in one["items"]}) for one in sources)
    for container in pod_of(workload)["containers"]:
        yield from ((one["secretRef"]["name"], {"key"}) for one in container.get("envFrom", []))


def bind_claim(cluster: Cluster, namespace: str, claim: str) -> None:
    common = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
    host = {"hostPath": {"path": "/tmp/none"}, "capacity": {"storage": "1Gi"}}
    volume = {"metadata": {"name": f"{namespace}-{claim}"}, "spec": common | host}
    cluster.api.call("POST", "/api/v1/persistentvolumes", volume)
    asked = common | {"resources": {"requests": {"storage": "1Gi"}}, "volumeName": f"{namespace}-{claim}"}
    body = {"metadata": {"name": claim}, "spec": asked}
    cluster.api.call("POST", f"/api/v1/namespaces/{namespace}/persistentvolumeclaims", body)


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.faults) for name in EXAMPLES]
)
def test_a_release_comes_is_changed_goes_back_and_goes_leaving_only_what_is_kept(
    name: str, cluster: Cluster, tmp_path: Path
) -> None:
    values = example(name)
    namespace, there = prepared(cluster, name, values)
    given = ["-f", f"{CHART}/ci/{name}-values.yaml"]
    wait = ["--wait", "--timeout", f"{WAIT_S:g}s"]

    told = helm(cluster, namespace, "install", "demo", str(CHART), *given, *wait)
    assert "helm test demo" in told
    assert unready(cluster, namespace) == []

    before = revisions(cluster, namespace)
    helm(cluster, namespace, "upgrade", "demo", str(CHART), *given, *wait, "--set", "tenant=other")
    assert all(revisions(cluster, namespace)[one] > number for one, number in before.items()), "pods were rolled"
    helm(cluster, namespace, "rollback", "demo", "1", *wait)
    assert unready(cluster, namespace) == []
    tested = helm(cluster, namespace, "test", "demo", "--timeout", "60s")
    assert "Phase:          Succeeded" in tested

    helm(cluster, namespace, "uninstall", "demo", *wait)
    kept = {
        (one["kind"], str(one["metadata"]["name"]))
        for kind in ("KafkaTopic", "KafkaUser")
        for one in of_kind(rendered(values), kind)
    }
    until(lambda: cluster.left(namespace) - there <= kept, WAIT_S, f"only {kept} is left: {cluster.left(namespace)}")
    assert cluster.left(namespace) - there == kept


def revisions(cluster: Cluster, namespace: str) -> dict[str, int]:
    return {
        one["metadata"]["name"]: int(one["metadata"]["annotations"]["deployment.kubernetes.io/revision"])
        for one in cluster.api.items(f"/apis/apps/v1/namespaces/{namespace}/deployments")
    }


def unready(cluster: Cluster, namespace: str) -> list[str]:
    return [
        one["metadata"]["name"]
        for one in cluster.api.items(f"/apis/apps/v1/namespaces/{namespace}/deployments")
        if one["status"].get("readyReplicas", 0) != one["spec"]["replicas"]
    ]


def test_a_secret_that_is_not_there_fails_the_install_and_is_named(cluster: Cluster) -> None:
    cluster.api.namespace("no-secret")
    values = ["-f", f"{CHART}/ci/minimal-values.yaml", "--set", "redis.existingSecret=forgotten,topics.manage=none"]

    error = refused(cluster, "no-secret", "install", "demo", str(CHART), *values, "--wait", "--timeout", "6s")

    assert "demo-tracklog-" in error
    pods = cluster.api.items("/api/v1/namespaces/no-secret/pods")
    reasons = [one["status"]["containerStatuses"][0]["state"]["waiting"]["message"] for one in pods]
    assert reasons
    assert all('secrets "forgotten"' in one for one in reasons)


def test_the_hook_fails_the_install_before_anything_else_is_there(cluster: Cluster) -> None:
    cluster.api.namespace("no-hook")
    values = ["-f", f"{CHART}/ci/minimal-values.yaml", "--set", "redis.existingSecret=forgotten"]
    values += ["--set", "topics.job.activeDeadlineSeconds=3"]

    error = refused(cluster, "no-hook", "install", "demo", str(CHART), *values, "--wait", "--timeout", "20s")

    assert "pre-install" in error
    assert cluster.api.items("/apis/apps/v1/namespaces/no-hook/deployments") == []


def test_a_port_that_nothing_listens_at_fails_the_install(cluster: Cluster) -> None:
    cluster.api.namespace("no-port")
    values = ["-f", f"{CHART}/ci/minimal-values.yaml", "--set-json", 'settings={"health.listen":"0.0.0.0:9"}']

    error = refused(cluster, "no-port", "install", "demo", str(CHART), *values, "--wait", "--timeout", "6s")

    assert "demo-tracklog-" in error


def test_a_field_that_kubernetes_does_not_know_fails_the_install(cluster: Cluster, tmp_path: Path) -> None:
    cluster.api.namespace("no-field")
    values = over(example("minimal"), defaults__affinity={"nodeAffinty": {}})
    path = tmp_path / "values.json"
    path.write_text(json.dumps(values), encoding="utf-8")

    error = refused(cluster, "no-field", "install", "demo", str(CHART), "-f", str(path), "--timeout", "20s")

    assert "nodeAffinty" in error


def test_a_secret_that_was_changed_rolls_the_pods_that_use_it(cluster: Cluster) -> None:
    cluster.api.namespace("rotated")
    cluster.api.secret("rotated", "redis", {"password": "old"})
    values = ["-f", f"{CHART}/ci/minimal-values.yaml", "--set", "redis.existingSecret=redis,topics.manage=none"]
    helm(cluster, "rotated", "install", "demo", str(CHART), *values, "--wait", "--timeout", "60s")
    before = revisions(cluster, "rotated")
    helm(cluster, "rotated", "upgrade", "demo", str(CHART), *values, "--wait", "--timeout", "60s")
    assert revisions(cluster, "rotated") == before, "nothing was changed"

    changed = {"stringData": {"password": "new"}}
    path = "/api/v1/namespaces/rotated/secrets/redis"
    cluster.api.call("PATCH", path, changed, "application/merge-patch+json")
    helm(cluster, "rotated", "upgrade", "demo", str(CHART), *values, "--wait", "--timeout", "60s")

    assert all(revisions(cluster, "rotated")[one] == number + 1 for one, number in before.items())
