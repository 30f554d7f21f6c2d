"""The events of a trajectory over HTTP: pages, and a stream of server-sent events that can be resumed.

id: 17                the seq; sent back as `Last-Event-ID`, the stream goes on behind it
event: ToolResult
data: {...}           as `tracklog replay events --format jsonl` writes it
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Final

import orjson
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tracklog.consumers.event_json import event_map
from tracklog.consumers.read_events import Accepted
from tracklog.infra.log.partitioner import partition_of
from tracklog.infra.log.port import Log, Reader, Record

__all__ = ["EventStream", "gone", "poll"]

POLL_S: Final = 0.5
POLL_RECORDS_MAX: Final = 100
BEAT_S: Final = 15.0
"""Between two signs of life on a stream on which nothing comes."""
SEND_S_MAX: Final = 30.0
"""How long a client may take nothing before its stream is ended."""
STREAM_S_MAX: Final = 3600.0
"""The life of a stream; its client connects again and goes on."""


class EventStream(Response):
    """Follows a trajectory to its end. A client that reads nothing for SEND_S_MAX is let go of."""

    media_type = "text/event-stream"

    def __init__(
        self, log: Log, topic: str, trajectory_id: str, after: int, stopping: Callable[[], bool] = lambda: False
    ) -> None:
        super().__init__(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._log = log
        self._topic = topic
        self._key = trajectory_id.encode()
        self._after = after
        self._stopping = stopping

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        left = asyncio.create_task(gone(receive))
        try:
            async with asyncio.timeout(STREAM_S_MAX):
                await self._follow(send, left)
        except TimeoutError:
            return  # the client is slow, or has had its time: it connects again with the id of the last event
        finally:
            left.cancel()
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _follow(self, send: Send, left: asyncio.Task[None]) -> None:
        partition = partition_of(self._key, await asyncio.to_thread(self._log.partition_count, self._topic))
        first = (await asyncio.to_thread(self._log.bounds, self._topic, partition)).first
        reader = await asyncio.to_thread(self._log.reader, self._topic, {partition: first})
        accepted, quiet_s = Accepted(self._key), 0.0
        with closing(reader):
            while not left.done() and not self._stopping():
                records = await asyncio.to_thread(poll, reader)
                text = b"".join(self._frames(accepted, records))
                quiet_s = 0.0 if text else quiet_s + (0.0 if records else POLL_S)
                if not text and quiet_s >= BEAT_S:
                    text, quiet_s = b": still here\n\n", 0.0
                if text:
                    async with asyncio.timeout(SEND_S_MAX):
                        await send({"type": "http.response.body", "body": text, "more_body": True})
                if b"event: TaskEnded\n" in text:
                    return

    def _frames(self, accepted: Accepted, records: list[Record]) -> Iterator[bytes]:
        for record in records:
            for event, _ in accepted.of(record):
                if event.envelope.seq > self._after:
                    data = orjson.dumps(event_map(event, record))
                    yield b"id: %d\nevent: %s\ndata: %s\n\n" % (event.envelope.seq, event.name.encode(), data)


def poll(reader: Reader) -> list[Record]:
    return reader.poll(POLL_RECORDS_MAX, POLL_S)


async def gone(receive: Receive) -> None:
    """Returns when the client has left."""
    while (await receive())["type"] != "http.disconnect":
        pass
