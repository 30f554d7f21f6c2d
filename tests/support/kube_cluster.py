"""A Kubernetes without nodes: etcd, the API server, its controllers and its scheduler, on loopback."""

from __future__ import annotations

import json
import ssl
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from tests.support.kube_tools import tool
from tracklog.infra.stack.ports import free_ports

__all__ = ["Api", "Cluster", "cluster_in", "until"]

START_S: Final = 90.0
STOP_S: Final = 10.0
PAUSE_S: Final = 0.2
TOKEN: Final = "test-admin"

Object = dict[str, Any]


def until(holds: Callable[[], Any], bound_s: float, what: str) -> Any:
    """What `holds` gives once it is true. AssertionError that says `what` after the bound."""
    pause = threading.Event()
    for _ in range(round(bound_s / PAUSE_S)):
        found = holds()
        if found:
            return found
        pause.wait(PAUSE_S)
    raise AssertionError(f"not within {bound_s:g} s: {what}")


class Api:
    """The API server, in JSON."""

    def __init__(self, port: int) -> None:
        self._base = f"https://127.0.0.1:{port}"
        self._context = ssl.create_default_context()
        self._context.check_hostname = False
        self._context.verify_mode = ssl.CERT_NONE

    def call(self, method: str, path: str, body: object = None, kind: str = "application/json") -> Object | None:
        """The answer; None where there is no such object, or one of that name already. Raises HTTPError."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": kind}
        request = urllib.request.Request(self._base + path, data=data, headers=headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=20, context=self._context) as answer:
                read = answer.read()
        except urllib.error.HTTPError as error:
            if error.code in (404, 409):
                return None
            raise
        return json.loads(read) if read.startswith(b"{") else {"text": read.decode()}

    def items(self, path: str) -> list[Object]:
        found = self.call("GET", path)
        return [] if found is None else list(found["items"])

    def ready(self) -> bool:
        try:
            return self.call("GET", "/readyz") == {"text": "ok"}
        except OSError:
            return False

    def status(self, path: str, status: Object) -> None:
        self.call("PATCH", f"{path}/status", {"status": status}, "application/merge-patch+json")

    def namespace(self, name: str) -> None:
        self.call("POST", "/api/v1/namespaces", {"metadata": {"name": name}})

    def secret(self, namespace: str, name: str, keys: dict[str, str]) -> None:
        body = {"metadata": {"name": name}, "stringData": keys}
        self.call("POST", f"/api/v1/namespaces/{namespace}/secrets", body)


class Cluster:
    """What runs: its API and where the file is by which Helm finds it."""

    def __init__(self, api: Api, kubeconfig: Path) -> None:
        self.api = api
        self.kubeconfig = kubeconfig

    def left(self, namespace: str) -> set[tuple[str, str]]:
        """Kind and name of everything in a namespace that Kubernetes itself did not put there."""
        found = set()
        for group in ("/api/v1", *self._groups()):
            for resource in (self.api.call("GET", group) or {"resources": []})["resources"]:
                if not resource["namespaced"] or "list" not in resource["verbs"] or "/" in resource["name"]:
                    continue
                for one in self.api.items(f"{group}/namespaces/{namespace}/{resource['name']}"):
                    found.add((resource["kind"], str(one["metadata"]["name"])))
        own = {("ConfigMap", "kube-root-ca.crt"), ("ServiceAccount", "default")}
        return {one for one in found if one[0] not in ("Event", "Lease")} - own

    def _groups(self) -> list[str]:
        groups = (self.api.call("GET", "/apis") or {"groups": []})["groups"]
        return [f"/apis/{one['preferredVersion']['groupVersion']}" for one in groups]


@contextmanager
def cluster_in(folder: Path) -> Iterator[Cluster]:
    """Runs for as long as the block lasts; every program is ended after it."""
    programs = {name: tool(name) for name in ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")}
    names = ("client", "peer", "api", "controllers", "scheduler")
    ports = dict(zip(names, free_ports(len(names)), strict=True))
    kubeconfig = _kubeconfig(folder, ports["api"])
    with ExitStack() as stack:
        for name, words in _commands(folder, ports, kubeconfig):
            stack.enter_context(_running([programs[name], *words], folder / f"{name}.log"))
        api = Api(ports["api"])
        until(api.ready, START_S, f"the API server is ready, see {folder}")
        yield Cluster(api, kubeconfig)


def _commands(folder: Path, ports: dict[str, int], kubeconfig: Path) -> Iterator[tuple[str, list[str]]]:
    client, peer = (f"http://127.0.0.1:{ports[name]}" for name in ("client", "peer"))
    keys = folder / "keys"
    keys.mkdir()
    subprocess.run(["openssl", "genrsa", "-out", str(keys / "sa.key"), "2048"], check=True, capture_output=True)
    public = ["openssl", "rsa", "-in", str(keys / "sa.key"), "-pubout", "-out", str(keys / "sa.pub")]
    subprocess.run(public, check=True, capture_output=True)
    (keys / "tokens.csv").write_text(f"{TOKEN},admin,admin,system:masters\n", encoding="utf-8")
    etcd = {"data-dir": folder / "etcd", "listen-client-urls": client, "advertise-client-urls": client}
    etcd |= {"listen-peer-urls": peer, "initial-advertise-peer-urls": peer, "initial-cluster": f"default={peer}"}
    yield "etcd", ["--unsafe-no-fsync", *_flags(etcd)]
    server = {
        "etcd-servers": client,
        "bind-address": "127.0.0.1",
        "advertise-address": "127.0.0.1",
        "secure-port": ports["api"],
        "cert-dir": keys / "api",
        "service-cluster-ip-range": "10.96.0.0/16",
        "authorization-mode": "RBAC",
        "token-auth-file": keys / "tokens.csv",
        "service-account-issuer": "https://kubernetes.default.svc",
        "service-account-key-file": keys / "sa.pub",
        "service-account-signing-key-file": keys / "sa.key",
        "endpoint-reconciler-type": "none",
        "disable-admission-plugins": "ServiceAccount",
    }
    yield "kube-apiserver", _flags(server)
    common = {"kubeconfig": kubeconfig, "bind-address": "127.0.0.1", "leader-elect": "false"}
    controllers = common | {"secure-port": ports["controllers"], "cert-dir": keys / "kcm"}
    controllers |= {"service-account-private-key-file": keys / "sa.key"}
    yield "kube-controller-manager", _flags(controllers)
    yield "kube-scheduler", _flags(common | {"secure-port": ports["scheduler"], "cert-dir": keys / "sched"})


def _flags(given: dict[str, Any]) -> list[str]:
    return [f"--{name}={value}" for name, value in given.items()]


def _kubeconfig(folder: Path, port: int) -> Path:
    path = folder / "kubeconfig"
    cluster = {"server": f"https://127.0.0.1:{port}", "insecure-skip-tls-verify": True}
    made = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": {"token": TOKEN}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path.write_text(json.dumps(made), encoding="utf-8")
    path.chmod(0o600)
    return path


@contextmanager
def _running(command: list[str], log: Path) -> Iterator[None]:
    with log.open("wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, cwd=log.parent)
        try:
            yield
        finally:
            process.kill()  # nothing of it is needed again
            process.wait(STOP_S)
