"""The service behind the airline's tools, in a process of its own: it answers as recorded and counts every effect.

    POST /EFFECT/RUN/TOOL    the arguments as JSON, with an Idempotency-Key; honoured where EFFECT is idempotent
    POST /probed/RUN/TOOL    200 with its output when the call of that key has happened, else 404
    GET  /effects            all that happened: {"run", "tool", "arguments", "key", "made", "asked"} each

`python -m tests.support.airline_service` prints its address.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.request import Request, urlopen

from tests.support.airline import Call, canonical, outputs_of, recordings

TIMEOUT_S = 20.0
PAUSE_S = 0.01
"""Before an effect and after it, so that processes are killed at both sides of it."""


@dataclass
class Effects:
    """Of one key. `made` counts effects, `asked` requests."""

    call: Call
    output: str
    made: int = 0
    asked: int = 0


class Service:
    def __init__(self) -> None:
        self._outputs = outputs_of(recordings())
        self._keys_of: Counter[Call] = Counter()
        self._lock = threading.Lock()
        self.effects: dict[str, Effects] = {}

    def make(self, call: Call, key: str, *, honoured: bool) -> str:
        """The n-th key of a call gets its n-th recorded output."""
        with self._lock:
            one = self.effects.get(key)
            if one is None:
                outputs = self._outputs[call]
                one = self.effects[key] = Effects(call, outputs[min(self._keys_of[call], len(outputs) - 1)])
                self._keys_of[call] += 1
            one.asked += 1
            if not honoured or one.made == 0:
                one.made += 1
            return one.output

    def found(self, key: str) -> str | None:
        with self._lock:
            one = self.effects.get(key)
            return None if one is None else one.output

    def all(self) -> list[dict[str, Any]]:
        with self._lock:
            names = ("run", "tool", "arguments")
            return [
                {**dict(zip(names, one.call, strict=True)), "key": key, "made": one.made, "asked": one.asked}
                for key, one in self.effects.items()
            ]


class _Handler(BaseHTTPRequestHandler):
    service: Service

    def do_POST(self) -> None:
        _, effect, run, tool = self.path.split("/")
        call = (run, tool, canonical(self.rfile.read(int(self.headers["Content-Length"]))))
        key = self.headers["Idempotency-Key"]
        if effect == "probed":
            output = self.service.found(key)
            self._answer(404 if output is None else 200, output or "")
            return
        threading.Event().wait(PAUSE_S)
        output = self.service.make(call, key, honoured=effect == "idempotent")
        threading.Event().wait(PAUSE_S)
        self._answer(200, output)

    def do_GET(self) -> None:
        self._answer(200, json.dumps(self.service.all()))

    def _answer(self, status: int, text: str) -> None:
        data = text.encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""


class _Server(ThreadingHTTPServer):
    request_queue_size = 128

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients are killed while they wait for their answer."""


@contextmanager
def service_process(env: dict[str, str]) -> Iterator[str]:
    """Its address."""
    command, pipe = [sys.executable, "-m", "tests.support.airline_service"], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=env) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.kill()


def all_effects(url: str) -> list[dict[str, Any]]:
    with urlopen(f"{url}/effects", timeout=TIMEOUT_S) as answer:
        return list(json.load(answer))


def make_by_hand(url: str, call: Call, key: str) -> str:
    """What a person does that finds a call undone: the same, under the same key."""
    run, tool, arguments = call
    request = Request(f"{url}/opaque/{run}/{tool}", data=arguments.encode(), headers={"Idempotency-Key": key})
    with urlopen(request, timeout=TIMEOUT_S) as answer:
        return str(answer.read().decode())


def main() -> None:
    server = _Server(("127.0.0.1", 0), type("Handler", (_Handler,), {"service": Service()}))
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdout.write(f"http://127.0.0.1:{server.server_address[1]}\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main()
