"""One request over HTTP from a thread: the deadline is checked last, and a request is never sent for nobody."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Final
from urllib.parse import SplitResult, urlsplit

from tracklog.infra.clock import Clock
from tracklog.producers.tool_thread import in_thread
from tracklog.schemas.errors import InvalidTool, ToolError, ToolExpired, ToolOutcomeUnknown

__all__ = ["Answer", "Endpoint"]

ANSWER_BYTES_MAX: Final = 16 * 1024 * 1024
"""Of an answer; what is behind it is not read."""
CONNECT_S_MAX: Final = 10.0
"""And at most half of the time-out, so that a service that cannot be reached is known to have done nothing."""
_RESERVED: Final = frozenset(("host", "content-type", "content-length", "transfer-encoding", "idempotency-key"))


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: str

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300


@dataclass(frozen=True)
class Endpoint:
    """Where a tool's calls go. `name` is for messages."""

    name: str
    url: SplitResult
    headers: Mapping[str, str]
    timeout_s: float
    tls: ssl.SSLContext | None
    clock: Clock

    @classmethod
    def of(
        cls,
        name: str,
        url: str,
        headers: Mapping[str, str],
        *,
        timeout_s: float,
        tls: ssl.SSLContext | None,
        clock: Clock,
    ) -> Endpoint:
        """Raises InvalidTool."""
        try:
            parts = urlsplit(url)
            usable = parts.scheme in ("http", "https") and parts.hostname is not None and parts.port != 0
        except ValueError:
            usable = False
        if not usable or not url.isascii() or not url.isprintable() or " " in url:
            raise InvalidTool(f"tool {name!r} has the url {url!r}", hint="http://host/path or https://host/path")
        if parts.username is not None or parts.password is not None:
            raise InvalidTool(f"the url of tool {name!r} holds a secret", hint="give it in headers=")
        _check_headers(name, headers)
        return cls(name, parts, dict(headers), timeout_s, tls, clock)

    async def post(self, headers: Mapping[str, str], body: bytes, *, deadline_us: int | None) -> Answer:
        """The answer, whatever its status; redirects are answers.

        Raises ToolError when there was no connection, ToolExpired when the deadline had passed before sending,
        TimeoutError and ToolOutcomeUnknown when the answer was lost.
        """
        sent = {**self.headers, **headers, "Content-Type": "application/json"}
        return await self._ask(_Exchange(self, "POST", sent, body, deadline_us))

    async def get(self) -> Answer:
        """See `post`."""
        return await self._ask(_Exchange(self, "GET", self.headers, None, None))

    async def _ask(self, exchange: _Exchange) -> Answer:
        try:
            return await in_thread(exchange.run)
        except asyncio.CancelledError:
            exchange.abandon()
            raise

    @property
    def target(self) -> str:
        path = self.url.path or "/"
        return f"{path}?{self.url.query}" if self.url.query else path

    def connection(self) -> HTTPConnection:
        host = self.url.hostname or ""
        connect_s = min(CONNECT_S_MAX, self.timeout_s / 2)
        if self.url.scheme == "http":
            return HTTPConnection(host, self.url.port, timeout=connect_s)
        return HTTPSConnection(host, self.url.port, timeout=connect_s, context=self._tls)

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        return self.tls if self.tls is not None else ssl.create_default_context()


class _Exchange:
    """One request and its answer, in a thread; `abandon` is for the loop that waits for it."""

    def __init__(
        self, endpoint: Endpoint, method: str, headers: Mapping[str, str], body: bytes | None, deadline_us: int | None
    ) -> None:
        self._endpoint = endpoint
        self._method = method
        self._headers = headers
        self._body = body
        self._deadline_us = deadline_us
        self._connection = endpoint.connection()
        self._abandoned = threading.Event()

    def run(self) -> Answer:
        try:
            self._connect()
            self._check_due()
            return self._exchange()
        finally:
            self._connection.close()

    def abandon(self) -> None:
        """Nothing is sent from here on; a thread that waits for an answer wakes up."""
        self._abandoned.set()
        connected: socket.socket | None = self._connection.sock
        if connected is not None:
            with suppress(OSError):
                # not the method of a TLS socket, which takes the session from under the thread that reads
                socket.socket.shutdown(connected, socket.SHUT_RDWR)

    def _connect(self) -> None:
        try:
            self._connection.connect()
            self._connection.sock.settimeout(self._endpoint.timeout_s)
        except OSError as error:
            raise ToolError(f"{self._endpoint.name} cannot be reached, nothing was sent: {error}") from error

    def _check_due(self) -> None:
        if self._abandoned.is_set():
            raise ToolExpired(f"the call of {self._endpoint.name} was given up before it was sent")
        if self._deadline_us is not None and self._endpoint.clock.now_us() >= self._deadline_us:
            raise ToolExpired(f"the deadline had passed before {self._endpoint.name} was sent anything")

    def _exchange(self) -> Answer:
        try:
            self._connection.request(self._method, self._endpoint.target, self._body, dict(self._headers))
            response = self._connection.getresponse()
            data = response.read(ANSWER_BYTES_MAX)
        except TimeoutError:
            raise TimeoutError(f"no answer from {self._endpoint.name}") from None
        except (OSError, HTTPException) as error:
            lost = f"the answer of {self._endpoint.name} was lost: {type(error).__name__}: {error}"
            raise ToolOutcomeUnknown(lost) from error
        if response.length and len(data) < ANSWER_BYTES_MAX:
            raise ToolOutcomeUnknown(f"{self._endpoint.name} answered {response.status} and broke off")
        return Answer(response.status, _decoded(response, data))


def _decoded(response: HTTPResponse, data: bytes) -> str:
    charset = response.headers.get_content_charset("utf-8")
    try:
        return data.decode(charset, "replace")
    except LookupError:
        return data.decode("utf-8", "replace")


def _check_headers(name: str, headers: Mapping[str, str]) -> None:
    for key, value in headers.items():
        if key.lower() in _RESERVED or key.lower().startswith("tracklog-"):
            raise InvalidTool(f"tool {name!r} sets the header {key!r}", hint="it is set for every call")
        if not key or not (key + value).isascii() or not (key + value).isprintable() or set(key) & set(" :"):
            raise InvalidTool(f"tool {name!r} has a header {key!r} that HTTP cannot send")
