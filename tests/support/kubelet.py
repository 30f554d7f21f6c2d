"""A stand-in for nodes: what is scheduled becomes running and ready, as far as a kubelet could start it.

A pod whose Secret, key, ConfigMap or ServiceAccount is missing stays as it would on a node, and so does one whose probe
names a port that its container does not have. Jobs succeed, and so do pods of `helm test`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Final
from urllib.error import HTTPError, URLError

from tests.support.kube_cluster import Api

__all__ = ["kubelet"]

NODE: Final = "node-0"
LOOK_S: Final = 0.2
BEAT_LOOKS: Final = 25
STOP_S: Final = 30.0
CAPACITY: Final = {"cpu": "64", "memory": "128Gi", "pods": "500", "ephemeral-storage": "500Gi"}

Object = dict[str, Any]


@contextmanager
def kubelet(api: Api) -> Iterator[None]:
    """One node, for as long as the block lasts."""
    stop, errors = threading.Event(), list[BaseException]()

    def run() -> None:
        try:
            _serve(api, stop)
        except BaseException as error:
            errors.append(error)  # given to whoever ends the block
            raise

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(STOP_S)
    assert not errors, errors


def _serve(api: Api, stop: threading.Event) -> None:
    labels = {"kubernetes.io/os": "linux", "kubernetes.io/hostname": NODE}
    api.call("POST", "/api/v1/nodes", {"metadata": {"name": NODE, "labels": labels}})
    looks = 0
    while not stop.is_set():
        try:
            if looks % BEAT_LOOKS == 0:
                _beat(api)
            for pod in api.items("/api/v1/pods"):
                _tend(api, pod)
        except (HTTPError, URLError, TimeoutError) as error:
            if isinstance(error, HTTPError) and error.code not in (409, 429, 500, 503):
                raise
        looks += 1
        stop.wait(LOOK_S)


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _beat(api: Api) -> None:
    ready = {"type": "Ready", "status": "True", "reason": "Here", "lastHeartbeatTime": _now()}
    api.status(f"/api/v1/nodes/{NODE}", {"capacity": CAPACITY, "allocatable": CAPACITY, "conditions": [ready]})
    untainted: Object = {"spec": {"taints": []}}
    api.call("PATCH", f"/api/v1/nodes/{NODE}", untainted, "application/merge-patch+json")


def _tend(api: Api, pod: Object) -> None:
    meta, phase = pod["metadata"], pod.get("status", {}).get("phase")
    path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
    if meta.get("deletionTimestamp"):
        api.call("DELETE", path, {"gracePeriodSeconds": 0})
    elif pod["spec"].get("nodeName") and phase not in ("Running", "Succeeded", "Failed"):
        api.status(path, _status(api, pod))


def _status(api: Api, pod: Object) -> Object:
    base = {"startTime": _now(), "hostIP": "127.0.0.1", "podIP": "127.0.0.2"}
    missing = _missing(api, pod)
    names = [one["name"] for one in pod["spec"]["containers"]]
    if missing is not None:
        waiting = {"waiting": {"reason": missing[0], "message": missing[1]}}
        return base | {"phase": "Pending", "containerStatuses": [_container(name, waiting, False) for name in names]}
    owners = {one["kind"] for one in pod["metadata"].get("ownerReferences", [])}
    if "Job" in owners or pod["spec"]["restartPolicy"] == "Never":
        ended = {"terminated": {"exitCode": 0, "reason": "Completed", "startedAt": _now(), "finishedAt": _now()}}
        return base | {"phase": "Succeeded", "containerStatuses": [_container(name, ended, False) for name in names]}
    unready = _unready(pod)
    state = "False" if unready else "True"
    conditions = [{"type": kind, "status": "True"} for kind in ("Initialized", "PodScheduled")]
    conditions += [{"type": kind, "status": state} for kind in ("Ready", "ContainersReady")]
    running = {"running": {"startedAt": _now()}}
    each = [_container(name, running, not unready) for name in names]
    return base | {"phase": "Running", "conditions": conditions, "containerStatuses": each}


def _container(name: str, state: Object, ready: bool) -> Object:
    return {
        "name": name,
        "image": "x",
        "imageID": "",
        "ready": ready,
        "started": ready,
        "restartCount": 0,
        "state": state,
    }


def _unready(pod: Object) -> bool:
    """A probe at a port that the container does not have never succeeds."""
    for one in pod["spec"]["containers"]:
        ports = {port.get("name") for port in one.get("ports", [])} | {port["containerPort"] for port in one["ports"]}
        listen = next((e["value"] for e in one["env"] if e["name"] == "TRACKLOG_HEALTH__LISTEN"), "")
        health = next((port["containerPort"] for port in one["ports"] if port.get("name") == "health"), None)
        probed = [one[kind]["httpGet"]["port"] for kind in ("readinessProbe", "livenessProbe") if kind in one]
        if not set(probed) <= ports or not listen.endswith(f":{health}"):
            return True
    return False


def _missing(api: Api, pod: Object) -> tuple[str, str] | None:
    """The reason that a node would give, and what is not there."""
    space = f"/api/v1/namespaces/{pod['metadata']['namespace']}"
    account = pod["spec"].get("serviceAccountName", "default")
    if api.call("GET", f"{space}/serviceaccounts/{account}") is None:
        return "FailedCreate", f'serviceaccount "{account}" not found'
    for volume in pod["spec"].get("volumes", []):
        for kind, name, keys in _sources(volume):
            found = api.call("GET", f"{space}/{kind}/{name}")
            if found is None or not keys <= (found.get("data") or {}).keys():
                return "ContainerCreating", f'MountVolume.SetUp failed: {kind} "{name}" with {sorted(keys)} not found'
    for container in pod["spec"]["containers"]:
        for source in container.get("envFrom", []):
            name = next(iter(source.values()))["name"]
            kind = "secrets" if "secretRef" in source else "configmaps"
            if api.call("GET", f"{space}/{kind}/{name}") is None:
                return "CreateContainerConfigError", f'{kind} "{name}" not found'
    return None


def _sources(volume: Object) -> Iterator[tuple[str, str, set[str]]]:
    if "secret" in volume:
        yield "secrets", volume["secret"]["secretName"], _keys(volume["secret"])
    for source in volume.get("projected", {}).get("sources") or []:
        if "secret" in source:
            yield "secrets", source["secret"]["name"], _keys(source["secret"])


def _keys(source: Object) -> set[str]:
    return {str(one["key"]) for one in source.get("items", [])}
