"""What one client may ask of the server: bytes of a request, requests a second."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tracklog.consumers.api.errors import said
from tracklog.consumers.api.forms import refused
from tracklog.infra.clock import Clock

__all__ = ["BodyLimit", "RateLimit"]

CLIENTS_MAX: Final = 10_000
"""Clients whose rate is known; the one that was not seen for longest is forgotten."""


class RateLimit:
    """A bucket for each client: `per_s` requests a second, and as many at once."""

    def __init__(self, per_s: float, clock: Clock) -> None:
        self._per_s = per_s
        self._clock = clock
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait_s(self, client: str) -> float:
        """0 for a request that may pass, else the seconds after which one may."""
        now_s = self._clock.monotonic_s()
        left, seen_s = self._left.pop(client, (self._per_s, now_s))
        left = min(max(1.0, self._per_s), left + (now_s - seen_s) * self._per_s)
        passes = left >= 1.0
        self._left[client] = (left - 1.0 if passes else left, now_s)
        if len(self._left) > CLIENTS_MAX:
            self._left.popitem(last=False)
        return 0.0 if passes else (1.0 - left) / self._per_s


class BodyLimit:
    """Answers 413 to a request with more bytes, whatever it says of its length."""

    def __init__(self, app: ASGIApp, bytes_max: int) -> None:
        self._app = app
        self._bytes_max = bytes_max

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        stated = dict(scope["headers"]).get(b"content-length", b"0")
        if stated.isdigit() and int(stated) > self._bytes_max:
            await self._refuse(scope, receive, send)
            return
        count = 0

        async def counted() -> Message:
            nonlocal count
            message = await receive()
            count += len(message.get("body", b""))
            if count > self._bytes_max:
                raise _TooLarge
            return message

        try:
            await self._app(scope, counted, send)
        except _TooLarge:
            await self._refuse(scope, receive, send)

    async def _refuse(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = said(413, f"the request has more than {self._bytes_max} bytes")
        await refused(scope["path"], 413, body)(scope, receive, send)


class _TooLarge(Exception):
    """More bytes came than may."""
