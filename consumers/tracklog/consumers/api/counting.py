"""Counts requests by route, and times them until their answer begins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tracklog.infra.clock import Clock

__all__ = ["Counted", "Counting"]

Counting = Callable[[str, str, int, float], object]
"""Method, route as the description writes it, status, seconds."""
METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
NO_ROUTE: Final = "none"


class Counted:
    """Middleware, the outermost: refusals by the others are answers too. One that ends without an answer is a 500."""

    def __init__(self, app: ASGIApp, counting: Counting, clock: Clock) -> None:
        self._app = app
        self._counting = counting
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began_s, status = self._clock.monotonic_s(), 0

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                self._count(scope, status, began_s)
            await send(message)

        try:
            await self._app(scope, receive, noted)
        finally:
            if not status:
                self._count(scope, 500, began_s)

    def _count(self, scope: Scope, status: int, began_s: float) -> None:
        method = scope["method"] if scope["method"] in METHODS else "other"
        route = getattr(scope.get("route"), "path", NO_ROUTE)
        self._counting(method, route, status, self._clock.monotonic_s() - began_s)
