"""The small HTTP server that answers probes and Prometheus, on threads of its own: a hung process still says so."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, NamedTuple

from tracklog.infra.settings_health import place_of
from tracklog.schemas.errors import SettingsError

__all__ = ["Answer", "answering"]

REQUESTS_MAX: Final = 16
"""Requests at once; more are hung up on."""
REQUEST_S_MAX: Final = 10.0
"""Seconds that one client has to say what it wants, and to take the answer."""


class Answer(NamedTuple):
    status: int
    content_type: str
    body: bytes


@contextmanager
def answering(listen: str, answers: Mapping[str, Callable[[], Answer]]) -> Iterator[str]:
    """Serves `answers` by path while the block lasts; gives the address, as HOST:PORT. Raises SettingsError for one
    that cannot be listened at."""
    host, port = place_of(listen)
    try:
        server = _Server((host, port), answers)
    except OSError as error:
        raise SettingsError(
            f"nothing can listen at {listen}: {error.strerror or error}", hint="set health.listen to a free HOST:PORT"
        ) from error
    thread = threading.Thread(target=server.serve_forever, name="tracklog-health", daemon=True)
    thread.start()
    try:
        yield f"{host}:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, address: tuple[str, int], answers: Mapping[str, Callable[[], Answer]]) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self.answers = answers
        self._free = threading.BoundedSemaphore(REQUESTS_MAX)
        super().__init__(address, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is its own business."""


class _Handler(BaseHTTPRequestHandler):
    timeout = REQUEST_S_MAX
    server_version = "tracklog"
    sys_version = ""
    server: _Server

    def do_GET(self) -> None:
        answer = self.server.answers.get(self.path.partition("?")[0])
        found = Answer(404, "text/plain", b"/healthz, /readyz or /metrics\n") if answer is None else answer()
        self.send_response(found.status)
        self.send_header("Content-Type", found.content_type)
        self.send_header("Content-Length", str(len(found.body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(found.body)

    do_HEAD = do_GET

    def log_message(self, format: str, *args: object) -> None:
        """Probes come every few seconds: nobody wants a line for each."""
