"""What streams of server-sent events have in common: bounds, signs of life, and an end."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Final

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

__all__ = ["BEAT_S", "SEND_S_MAX", "STREAM_S_MAX", "ServerSent", "gone"]

BEAT_S: Final = 15.0
"""Between two signs of life on a stream on which nothing comes."""
SEND_S_MAX: Final = 30.0
"""How long a client may take nothing before its stream is ended."""
STREAM_S_MAX: Final = 3600.0
"""The life of a stream; its client connects again and goes on."""


class ServerSent(Response, ABC):
    """Sends what `frames` gives until that ends, the client has left, or the server goes away.

    A client that takes nothing for SEND_S_MAX is let go of, with what is buffered for it: what the server's own buffer
    holds, and one more piece. It connects again with the id of the last event it has.
    """

    media_type = "text/event-stream"

    def __init__(self, stopping: Callable[[], bool]) -> None:
        super().__init__(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._stopping = stopping

    @abstractmethod
    def frames(self) -> AsyncGenerator[bytes, None]:
        """What to send next; b"" when nothing came for a moment."""

    def beat(self) -> bytes:
        """A sign of life."""
        return b": still here\n\n"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        left = asyncio.create_task(gone(receive))
        try:
            async with asyncio.timeout(STREAM_S_MAX), aclosing(self.frames()) as frames:
                await self._tell(frames, send, left)
        except TimeoutError:
            return
        finally:
            left.cancel()
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _tell(self, frames: AsyncGenerator[bytes, None], send: Send, left: asyncio.Task[None]) -> None:
        loop = asyncio.get_running_loop()
        told_s = loop.time()
        async for text in frames:
            if left.done() or self._stopping():
                return
            if not text and loop.time() - told_s >= BEAT_S:
                text = self.beat()
            if text:
                async with asyncio.timeout(SEND_S_MAX):
                    await send({"type": "http.response.body", "body": text, "more_body": True})
                told_s = loop.time()


async def gone(receive: Receive) -> None:
    """Returns when the client has left."""
    while (await receive())["type"] != "http.disconnect":
        pass
