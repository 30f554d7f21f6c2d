"""How many streams may be open at once."""

from __future__ import annotations

from fastapi import HTTPException
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tracklog.consumers.api.services import Services

__all__ = ["check_room", "counted"]


def check_room(has: Services) -> None:
    """Raises HTTPException 503 when as many are open as may be."""
    if has.streams >= has.streams_max:
        raise HTTPException(503, f"{has.streams_max} streams are open", {"Retry-After": "5"})


def counted(has: Services, stream: Response) -> Response:
    """Raises as `check_room`."""
    check_room(has)
    return _Counted(has, stream)


class _Counted(Response):
    """A stream that is counted while it is open."""

    def __init__(self, has: Services, stream: Response) -> None:
        super().__init__()
        self._has = has
        self._stream = stream

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._has.streams += 1
        try:
            await self._stream(scope, receive, send)
        finally:
            self._has.streams -= 1
