"""What clients in other languages can record through one process of `tracklog serve`: batches of 100 events.

Beside events a second stands how many there are to a second of the server's own CPU time, which a busy machine changes
less, and how busy it was.
"""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks import services
from benchmarks.measure import Measure, cpu_s_of, milliseconds_p50
from benchmarks.startup import COMMAND
from tracklog.infra.stack.ports import LOOPBACK, free_ports
from tracklog.infra.stack.process import wait_until

TURNS_A_BATCH = 20
"""Of five events each: context, reply, ruling, intent, result."""
BATCHES = 20
CLIENTS = 8
UP_WITHIN_S = 60.0
CONFIG = "[topics]\nreplication_factor = 1\nmin_insync_replicas = 1\n"


def measure_ingest() -> list[Measure]:
    with services.scratch() as folder, services.valkey() as redis, services.kafka() as bootstrap:
        (folder / "tracklog.toml").write_text(CONFIG)
        kafka = f"kafka://{bootstrap}"
        subprocess.run([str(COMMAND), "--log", kafka, "topics", "apply"], cwd=folder, capture_output=True, check=True)
        return [
            measure
            for name, log in (("SQLite", f"sqlite:{folder}/log.db"), ("Kafka", kafka))
            for measure in _of_log(name, log, redis, folder)
        ]


def _of_log(name: str, log: str, redis: str, folder: Path) -> Iterator[Measure]:
    with _serving(log, redis, folder) as (port, pid):
        before_s = cpu_s_of(pid)
        one = _Client(port, "one").record()
        began = time.perf_counter()
        with ThreadPoolExecutor(CLIENTS) as pool:
            found = list(pool.map(lambda number: _Client(port, f"many-{number}").record(), range(CLIENTS)))
        took_s, cpu_s = time.perf_counter() - began, cpu_s_of(pid) - before_s
    events = TURNS_A_BATCH * 5 * BATCHES
    yield Measure(f"{name}: one client", events / sum(one), "events/s")
    yield Measure(f"{name}: one client, a batch of 100, p50", milliseconds_p50(one), "ms")
    yield Measure(f"{name}: {CLIENTS} clients side by side", events * len(found) / took_s, "events/s")
    yield Measure(f"{name}: all of them, by CPU time of the server", events * (len(found) + 1) / cpu_s, "events/CPU s")
    yield Measure(f"{name}: load average of the machine meanwhile", os.getloadavg()[0], "")


@contextmanager
def _serving(log: str, redis: str, folder: Path) -> Iterator[tuple[int, int]]:
    """(port, pid)."""
    port = free_ports(1)[0]
    options = ["--log", log, "--set", f"redis.url={redis}", "--set", f"api.port={port}"]
    with (folder / "serve.txt").open("wb") as said:
        process = subprocess.Popen([str(COMMAND), *options, "serve"], cwd=folder, stdout=said, stderr=said)
    try:
        if not wait_until(lambda: _is_up(port), UP_WITHIN_S):
            raise RuntimeError((folder / "serve.txt").read_text())
        yield port, process.pid
    finally:
        process.terminate()
        process.wait()


def _is_up(port: int) -> bool:
    try:
        connection = http.client.HTTPConnection(LOOPBACK, port, timeout=1)
        connection.request("GET", "/healthz")
        return connection.getresponse().status == 200
    except OSError:
        return False


class _Client:
    def __init__(self, port: int, trajectory_id: str) -> None:
        self._connection = http.client.HTTPConnection(LOOPBACK, port, timeout=60)
        self._id = trajectory_id

    def record(self) -> list[float]:
        """Seconds of each batch."""
        self._post("/trajectories", {"id": self._id, "client": "bench", "agent": "bench", "task": "record"})
        took = []
        for batch in range(BATCHES):
            events = [event for turn in range(TURNS_A_BATCH) for event in _turn(f"{batch}-{turn}")]
            given = {"client": "bench", "first": 1 + batch * len(events), "events": events}
            began = time.perf_counter()
            self._post(f"/trajectories/{self._id}/events", given)
            took.append(time.perf_counter() - began)
        return took

    def _post(self, path: str, given: object) -> None:
        self._connection.request("POST", path, json.dumps(given), {"Content-Type": "application/json"})
        answer = self._connection.getresponse()
        text = answer.read()
        if answer.status >= 300:
            raise RuntimeError(text.decode())


def _turn(call_id: str) -> list[dict[str, Any]]:
    function = {"name": "search", "arguments": '{"city":"Oslo"}'}
    call = {"id": call_id, "type": "function", "function": function}
    about = {"call_id": call_id}
    return [
        {"type": "ContextBuilt"},
        {"type": "ModelReplied", "reply": {"role": "assistant", "content": "Let me look.", "tool_calls": [call]}},
        {"type": "Authorized", **about, "ruling": "allow"},
        {"type": "ToolIntent", **about, "tool": "search", "arguments": function["arguments"], "effect": "readonly"},
        {"type": "ToolResult", **about, "status": "ok", "output": "3 flights, the first at 08:10, 120 EUR. " * 5},
    ]
