"""Replicas of the API in processes of their own, and what stands in front of them: requests go to them in turn."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

from tests.support.dying_server import kill_file
from tests.support.recording import ended, said, start, turn
from tests.support.worker_process import PARTITIONS, ROLES, ROOT
from tests.support.writing import read_accepted
from tracklog.consumers.verify import Verification
from tracklog.infra.log.port import Log
from tracklog.infra.stack.ports import LOOPBACK, free_ports
from tracklog.infra.stack.process import wait_until
from tracklog.schemas.codec import Event
from tracklog.schemas.fold import fold_all
from tracklog.schemas.state import State
from tracklog.schemas.topics import Topics

BOUND_S: Final = 60.0


class Served:
    """One replica. `kill_next`: it is killed after it has appended what comes next, before it answers."""

    def __init__(self, folder: Path, number: int, port: int) -> None:
        self.port = port
        self._kill = kill_file(folder, number)

    def kill_next(self) -> None:
        self._kill.touch()

    def is_up(self) -> bool:
        with suppress(OSError, http.client.HTTPException):
            connection = http.client.HTTPConnection(LOOPBACK, self.port, timeout=2)
            connection.request("GET", "/healthz")
            return connection.getresponse().status == 200
        return False

    def until_up(self) -> None:
        assert wait_until(self.is_up, BOUND_S), f"the replica at port {self.port} did not come up"

    def post(self, path: str, body: bytes) -> tuple[int, bytes]:
        """Raises OSError or HTTPException when it dies meanwhile."""
        connection = http.client.HTTPConnection(LOOPBACK, self.port, timeout=BOUND_S)
        connection.request("POST", path, body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        return answer.status, answer.read()


class Front:
    """Gives requests to the replicas in turn; `kill_at` are the requests, from 0, in which the replica is killed. One
    that has died is up again before it is given another. A client of a dead one sees its connection close."""

    def __init__(self, replicas: list[Served], kill_at: set[int]) -> None:
        self.replicas = replicas
        self.kill_at = kill_at
        self.asked = 0
        self.cut = 0
        self.statuses: list[int] = []
        self._server = ThreadingHTTPServer((LOOPBACK, 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self._server.server_address[1]}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def pass_on(self, path: str, body: bytes) -> tuple[int, bytes] | None:
        """None when the replica died."""
        number, self.asked = self.asked, self.asked + 1
        replica = self.replicas[number % len(self.replicas)]
        replica.until_up()
        if number in self.kill_at:
            replica.kill_next()
        try:
            answer = replica.post(path, body)
        except (OSError, http.client.HTTPException):
            self.cut += 1
            return None
        self.statuses.append(answer[0])
        return answer

    def _handler(front) -> type[BaseHTTPRequestHandler]:
        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                answer = front.pass_on(self.path, body)
                if answer is None:
                    self.close_connection = True
                    return
                status, text = answer
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *given: Any) -> None:
                """Says nothing."""

        return Handler


@contextmanager
def replicas(log_url: str, prefix: str, redis_url: str, folder: Path, count: int = 2) -> Iterator[list[Served]]:
    settings = {"topics.partitions": PARTITIONS, "topics.replication_factor": 1, "topics.min_insync_replicas": 1}
    options = ["--log", log_url, "--prefix", prefix, "--blobs", str(folder / "blobs")]
    for key, value in {**settings, "redis.url": redis_url}.items():
        options += ["--set", f"{key}={value}"]
    ports = free_ports(count)
    path = os.pathsep.join([*(str(ROOT / role) for role in ROLES), str(ROOT)])
    command = [sys.executable, "-m", "tests.support.dying_server", str(folder), ",".join(map(str, ports)), *options]
    process = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": path}, cwd=ROOT, start_new_session=True)
    served = [Served(folder, number, port) for number, port in enumerate(ports)]
    try:
        for one in served:
            one.until_up()
        yield served
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def record_run(front: Front, trajectory_id: str, turns: int) -> list[Any]:
    """A whole run, each turn in a batch, as a client sends it: the same again until it is answered. The answers."""
    path = f"/trajectories/{trajectory_id}/events"
    answers = [_sent(front, "/trajectories", start(id=trajectory_id))]
    batches = [[said(), *turn("call-0")], *(turn(f"call-{number}") for number in range(1, turns)), ended()]
    for events in batches:
        given = {"client": "ts", "first": answers[-1]["next"], "events": events}
        answers.append(_sent(front, path, given))
        # and once more, of which the client does not know that it was answered
        assert _sent(front, path, given) == answers[-1]
    return answers


def _sent(front: Front, path: str, given: object) -> Any:
    body = json.dumps(given).encode()
    for _ in range(20):
        answer = front.pass_on(path, body)
        if answer is not None and answer[0] not in (503, 504):
            assert answer[0] < 300, answer
            return json.loads(answer[1])
    raise AssertionError(f"no answer to {path}")


def check_once(log: Log, prefix: str, trajectory_id: str, source: str, count: int) -> list[Event]:
    """The chain verifies, nothing is irregular, and each event of the client is in once and in order."""
    (report,) = Verification(log, Topics(prefix).events, only=trajectory_id).reports()
    assert report.sound, report
    events = read_accepted(log, trajectory_id, prefix=prefix)
    state = fold_all(State(trajectory_id), events)
    assert (state.irregular, state.faults, state.ended) == (0, 0, True)
    taken = [event.envelope.inbox_id for event in events if event.envelope.inbox_id is not None]
    assert [(one.source, one.seq) for one in taken] == [(source, number) for number in range(count)]
    return events
