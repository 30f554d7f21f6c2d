"""Pods of the chart as processes: exactly the command, arguments, variables and files that the rendered pod carries.

Each has an address of its own (127.0.1.N), as pods have, so all keep their ports; a folder stands for its file system,
and the paths of its mounts are put there. Nothing else is in its environment but the PATH. Probes are a kubelet's.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.support.charts import Object, container, named, pod_of, rendered

__all__ = ["Node", "Pod", "Secrets"]

ROOT: Final = Path(__file__).resolve().parents[2]
ROLES: Final = ("schemas", "infra", "producers", "processors", "consumers")
IMAGES: Final = (ROOT / "examples" / "image", ROOT)
LOOK_S: Final = 0.1
Secrets = Mapping[str, Mapping[str, str]]


@dataclass
class Pod:
    """One that was started. `became_ready_s` after its start; `flaps`: probes that failed after it was ready, as
    often in a row as makes a kubelet act."""

    name: str
    spec: Object
    address: str
    process: subprocess.Popen[str]
    log: Path
    package: Path
    started_s: float = field(default_factory=time.monotonic)
    became_ready_s: float | None = None
    flaps: list[str] = field(default_factory=list)
    stopping: bool = False
    watcher: threading.Thread | None = None

    @property
    def grace_s(self) -> float:
        return float(self.spec["terminationGracePeriodSeconds"])

    def said(self) -> str:
        return self.log.read_text(encoding="utf-8")

    def resident_mib(self) -> float:
        """Memory that it holds now."""
        fields = Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii")
        (line,) = (one for one in fields.splitlines() if one.startswith("VmRSS:"))
        return int(line.split()[1]) / 1024

    @property
    def requested_mib(self) -> float:
        """Memory that the chart asks a node for."""
        text: str = self.spec["containers"][0]["resources"]["requests"]["memory"]
        assert text.endswith("Mi")
        return float(text.removesuffix("Mi"))

    def until_ready(self, bound_s: float) -> None:
        """AssertionError with what it said when it ends first, or is not ready by then."""
        pause = threading.Event()
        while self.became_ready_s is None:
            assert self.process.poll() is None, f"{self.name} ended with {self.process.returncode}: {self.said()}"
            assert time.monotonic() - self.started_s < bound_s, f"{self.name} is not ready: {self.said()}"
            pause.wait(LOOK_S)

    def terminate(self) -> tuple[int, float]:
        """As Kubernetes stops a pod: SIGTERM, then its grace period. Exit code (-9: killed) and seconds."""
        self.stopping, began = True, time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(self.grace_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait(10)
        return code, time.monotonic() - began

    def kill(self) -> None:
        self.stopping = True
        self.process.kill()
        self.process.wait(10)


class Node:
    """Starts pods of one release. `secrets`: the Secrets that are there, by name and key."""

    def __init__(self, values: Mapping[str, Any], folder: Path, secrets: Secrets) -> None:
        self.objects = rendered(values)
        self.package = ROOT
        """What is in the image: a tree with a folder for each role of the code."""
        self.pods: list[Pod] = []
        self._folder = folder
        self._secrets = secrets
        self._stop = threading.Event()

    @contextmanager
    def running(self) -> Iterator[Node]:
        """Everything that still runs is killed at the end of the block; what it said is told with a test that fails."""
        try:
            yield self
        finally:
            self._stop.set()
            for pod in self.pods:
                pod.kill()
                if pod.watcher is not None:
                    pod.watcher.join(10)
                sys.stdout.write(f"== {pod.name}\n{pod.said()[-4000:]}\n")

    def start(self, kind: str, name: str) -> Pod:
        """A pod of the workload whose name ends so; of a Deployment it is probed from now on."""
        workload = named(self.objects, kind, name)
        number = len(self.pods) + 1
        address, home = f"127.0.1.{number}", self._folder / f"pod-{number}"
        paths = self._mounted(workload, home)
        own = container(workload)
        words = [_placed(word, paths) for word in (*own["command"], *own["args"])]
        log = self._folder / f"pod-{number}.log"
        with log.open("w", encoding="utf-8") as file:
            process = subprocess.Popen(
                words,
                env=self._environment(own, paths, address),
                cwd=paths["/var/lib/tracklog"],
                stdout=file,
                stderr=subprocess.STDOUT,
                text=True,
            )
        pod = Pod(f"{workload['metadata']['name']}#{number}", pod_of(workload), address, process, log, self.package)
        self.pods.append(pod)
        if kind == "Deployment":
            pod.watcher = threading.Thread(target=self._probe, args=(pod, own), daemon=True)
            pod.watcher.start()
        return pod

    def done(self, kind: str, name: str, bound_s: float) -> Pod:
        """A pod that runs to its end. AssertionError with what it said unless it ends well."""
        pod = self.start(kind, name)
        code = pod.process.wait(bound_s)
        assert code == 0, pod.said()
        return pod

    def _mounted(self, workload: Object, home: Path) -> dict[str, str]:
        """Mount path in the pod -> path here, with the files of its Secrets. A claim is one folder for all."""
        volumes = {one["name"]: one for one in pod_of(workload)["volumes"]}
        paths: dict[str, str] = {}
        for mount in container(workload)["volumeMounts"]:
            volume = volumes[mount["name"]]
            claim = volume.get("persistentVolumeClaim")
            place = home / mount["name"] if claim is None else self._folder / f"claim-{claim['claimName']}"
            place.mkdir(parents=True, exist_ok=True)
            self._write_secrets(place, volume)
            paths[mount["mountPath"]] = str(place)
        return paths

    def _write_secrets(self, place: Path, volume: Object) -> None:
        """As a kubelet does: the files are in a hidden folder, behind two links, so that all can change at once."""
        sources = [volume["secret"] | {"name": volume["secret"]["secretName"]}] if "secret" in volume else []
        sources += [one["secret"] for one in volume.get("projected", {}).get("sources") or []]
        if not sources:
            return
        mode = (volume.get("secret") or volume["projected"])["defaultMode"]
        (place / "..written").mkdir()
        (place / "..data").symlink_to("..written")
        for source in sources:
            for item in source["items"]:
                file = place / "..written" / item["path"]
                file.write_text(self._secrets[source["name"]][item["key"]], encoding="utf-8")
                file.chmod(mode)
                (place / item["path"]).symlink_to(f"..data/{item['path']}")

    def _environment(self, own: Object, paths: dict[str, str], address: str) -> dict[str, str]:
        given = {one["name"]: _placed(one["value"], paths).replace("0.0.0.0", address) for one in own["env"]}
        sources = os.pathsep.join([*(str(self.package / role) for role in ROLES), *map(str, IMAGES)])
        return {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": sources,
            **given,
        }

    def _probe(self, pod: Pod, own: Object) -> None:
        """Startup until it succeeds once, then readiness and liveness by their periods."""
        ports = {one["name"]: one["containerPort"] for one in own["ports"]}
        while not self._over(pod) and not _answers(pod, own["startupProbe"], ports):
            self._stop.wait(LOOK_S)
        due = dict.fromkeys(("readinessProbe", "livenessProbe"), 0.0)
        failed = dict.fromkeys(due, 0)
        while not self._over(pod):
            for kind in due:
                if time.monotonic() < due[kind]:
                    continue
                found = _answers(pod, own[kind], ports)
                period_s = float(own[kind]["periodSeconds"])
                if kind == "readinessProbe" and pod.became_ready_s is None:
                    period_s = LOOK_S
                    if found:
                        pod.became_ready_s = time.monotonic() - pod.started_s
                elif not self._over(pod):
                    failed[kind] = 0 if found else failed[kind] + 1
                    if failed[kind] == own[kind]["failureThreshold"]:
                        pod.flaps.append(f"{kind} after {time.monotonic() - pod.started_s:.1f} s")
                due[kind] = time.monotonic() + period_s
            self._stop.wait(LOOK_S)

    def _over(self, pod: Pod) -> bool:
        return self._stop.is_set() or pod.stopping or pod.process.poll() is not None


def _placed(text: str, paths: Mapping[str, str]) -> str:
    """Paths of mounts, the longest first, as they are here: alone, or as what an option of an address is set to."""
    inside = "|".join(re.escape(one) for one in sorted(paths, key=len, reverse=True))
    return re.sub(rf"(?:^|(?<==))({inside})(?=/|$)", lambda found: paths[found[1]], text)


def _answers(pod: Pod, probe: Object, ports: Mapping[str, int]) -> bool:
    get = probe["httpGet"]
    url = f"http://{pod.address}:{ports[get['port']]}{get['path']}"
    try:
        with urllib.request.urlopen(url, timeout=float(probe["timeoutSeconds"])) as answer:
            return 200 <= int(answer.status) < 400
    except (urllib.error.URLError, OSError):
        return False
