"""A real HTTP server on 127.0.0.1 for one test: it answers as told, and remembers what it was asked."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

HOLD_S_MAX = 30.0


@dataclass(frozen=True)
class Asked:
    """A request. Names of headers are in small letters."""

    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Reply:
    """`length` is what Content-Length says, the body's by default: a longer one is a connection that broke off.

    `hold`: the answer waits until it is set. `lost`: the connection ends without an answer.
    """

    status: int = 200
    body: bytes = b"{}"
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)
    length: int | None = None
    hold: threading.Event | None = None
    lost: bool = False


Answer = Callable[[Asked], Reply]


@dataclass
class Loopback:
    url: str
    asked: list[Asked]
    arrived: threading.Semaphore

    def wait_for_request(self) -> None:
        """Until one more request has come."""
        assert self.arrived.acquire(timeout=HOLD_S_MAX), "no request came"


@contextmanager
def loopback(answer: Answer, tls: ssl.SSLContext | None = None) -> Iterator[Loopback]:
    asked: list[Asked] = []
    arrived = threading.Semaphore(0)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            size = int(self.headers.get("Content-Length", "0"))
            headers = {name.lower(): value for name, value in self.headers.items()}
            one = Asked(self.path, headers, self.rfile.read(size))
            asked.append(one)
            arrived.release()
            self.close_connection = True
            self._answer(answer(one))

        do_GET = do_POST

        def _answer(self, reply: Reply) -> None:
            if reply.hold is not None:
                reply.hold.wait(HOLD_S_MAX)
            if reply.lost:
                return
            try:
                self.send_response(reply.status)
                self.send_header("Content-Type", reply.content_type)
                self.send_header("Content-Length", str(len(reply.body) if reply.length is None else reply.length))
                for name, value in reply.headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(reply.body)
            except ConnectionError:
                self.close_connection = True  # whoever asked has given up

        def log_message(self, format: str, *args: object) -> None:
            """Nothing: the test has `asked`."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 128

    server = Server(("127.0.0.1", 0), Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield Loopback(f"{'http' if tls is None else 'https'}://127.0.0.1:{server.server_address[1]}", asked, arrived)
    finally:
        server.shutdown()
        server.server_close()
        thread.join(HOLD_S_MAX)


def in_turn(*replies: Reply) -> Answer:
    """The replies one after another; the last one again and again."""
    left = list(replies)
    lock = threading.Lock()

    def answer(_: Asked) -> Reply:
        with lock:
            return left.pop(0) if len(left) > 1 else left[0]

    return answer
