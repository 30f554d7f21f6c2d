"""Ids with slashes in a path: `/trajectories/team%2Frun-1/events` is about `team/run-1`.

A server decodes a path before it is routed, which would make two segments of one id. So a slash that was encoded stays
encoded here, and with it the percent sign, so that an id which really has `%2F` in it is not mistaken for one with a
slash; `routes.Id` decodes both.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote, unquote

from starlette.types import ASGIApp, Receive, Scope, Send

__all__ = ["EncodedSegments"]

_KEPT: Final = re.compile(r"[%/]")


class EncodedSegments:
    """Middleware: routes by the path as it was sent, where the server gives it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        raw = scope.get("raw_path")
        if scope["type"] == "http" and raw is not None and b"%" in raw:
            scope["path"] = "/".join(_segment(one) for one in raw.decode("latin-1").split("/"))
        await self._app(scope, receive, send)


def _segment(sent: str) -> str:
    return _KEPT.sub(lambda found: quote(found[0], safe=""), unquote(sent))
