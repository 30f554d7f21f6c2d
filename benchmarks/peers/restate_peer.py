"""Restate: a handler with a `ctx.run`, behind an address that can be given to another process."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from http.client import HTTPConnection
from pathlib import Path

from benchmarks.peers.cases import END_S_MAX, STOPS, Case, start, wait_stopped, wake
from benchmarks.peers.installed import PYTHON, RESTATE_SERVER, version
from benchmarks.peers.stopping import Job
from benchmarks.peers.switch import Switch
from tracklog.infra.stack.ports import LOOPBACK, free_ports

START_S_MAX = 60.0
LOOK_S = 0.2


class Restate:
    """Frozen, it is overtaken when its connection is found dead, after about a minute; so all cases go at once."""

    tools: Sequence[str] = ("key", "nothing")
    at_once = 16

    def __init__(self, ingress: int, admin: int) -> None:
        self._ingress, self._admin = ingress, admin
        said = subprocess.run([str(RESTATE_SERVER), "--version"], capture_output=True, text=True, check=True)
        self.title = f"Restate {said.stdout.split()[-1]}, SDK {version('restate-sdk')}"

    def run(self, case: Case, folder: Path, ledger_url: str) -> str:
        said, ports = folder / "said", free_ports(2)
        job = Job(case.name, str(folder), ledger_url, case.point, STOPS[case.stop], case.tool == "key", ports[0])
        first, switch = self._start(job, said), Switch(ports[0])
        try:
            _asked(self._admin, "POST", "/deployments", {"uri": f"http://{LOOPBACK}:{switch.port}"})
            sent = _asked(self._ingress, "POST", f"/{case.name}/run/send", "it")
            wait_stopped(first, said)
            second = self._start(replace(job, port=ports[1]), said)
            switch.target_port = ports[1]
            try:
                return self._end(sent["invocationId"])
            finally:
                wake(first)
                second.kill()
                second.wait()
        finally:
            first.kill()
            first.wait()
            switch.close()

    def _start(self, job: Job, said: Path) -> subprocess.Popen[bytes]:
        process = start([str(PYTHON), "-m", "benchmarks.peers.restate_agent", job.argument()], said)
        until(lambda: _listens(job.port), f"an agent on port {job.port}")
        return process

    def _end(self, invocation_id: str) -> str:
        path = f"/restate/invocation/{invocation_id}/output"
        try:
            until(lambda: _status(self._ingress, path) == 200, "an end", END_S_MAX)
        except TimeoutError:
            return "no end"
        return "done"


@contextmanager
def restate(folder: Path) -> Iterator[Restate]:
    """With a server that it starts, with the settings it has by default."""
    ingress, admin, node = free_ports(3)
    environment = {
        **os.environ,
        "RESTATE_INGRESS__BIND_ADDRESS": f"{LOOPBACK}:{ingress}",
        "RESTATE_ADMIN__BIND_ADDRESS": f"{LOOPBACK}:{admin}",
        "RESTATE_BIND_IP": LOOPBACK,
        "RESTATE_BIND_PORT": str(node),
        "RESTATE_LISTEN_MODE": "tcp",
        "RESTATE_DISABLE_TELEMETRY": "true",
        "RESTATE_BASE_DIR": str(folder / "restate"),
    }
    with (folder / "restate.log").open("wb") as out:
        server = subprocess.Popen([str(RESTATE_SERVER), "--no-logo"], env=environment, stdout=out, stderr=out)
    try:
        until(lambda: _status(admin, "/health") == 200 and _listens(ingress), "the Restate server")
        yield Restate(ingress, admin)
    finally:
        server.kill()
        server.wait()


def until(true: Callable[[], bool], what: str, seconds: float = START_S_MAX) -> None:
    until_s = time.monotonic() + seconds
    while not true():
        if time.monotonic() > until_s:
            raise TimeoutError(f"{what} did not come within {seconds:g} s")
        time.sleep(LOOK_S)


def _listens(port: int) -> bool:
    try:
        socket.create_connection((LOOPBACK, port), timeout=1.0).close()
    except OSError:
        return False
    return True


def _status(port: int, path: str) -> int:
    try:
        with closing(HTTPConnection(LOOPBACK, port, timeout=10.0)) as connection:
            connection.request("GET", path)
            return connection.getresponse().status
    except OSError:
        return 0


def _asked(port: int, method: str, path: str, body: object) -> dict[str, str]:
    with closing(HTTPConnection(LOOPBACK, port, timeout=30.0)) as connection:
        connection.request(method, path, json.dumps(body), {"content-type": "application/json"})
        answer = connection.getresponse()
        text = answer.read().decode()
        if answer.status >= 300:
            raise RuntimeError(f"Restate answers {answer.status} to {path}: {text[:500]}")
        found: dict[str, str] = json.loads(text)
        return found
