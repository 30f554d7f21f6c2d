"""The events of a trajectory as a stream of server-sent events that can be resumed.

id: 17                the seq; sent back as `Last-Event-ID`, the stream goes on behind it
event: ToolResult
data: {...}           as `tracklog replay events --format jsonl` writes it
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import orjson

from tracklog.consumers.api.streams import ServerSent
from tracklog.consumers.event_json import event_map
from tracklog.consumers.read_events import Accepted
from tracklog.infra.log.partitioner import partition_of
from tracklog.infra.log.port import Log, Reader, Record

__all__ = ["EventStream", "poll"]

POLL_S: Final = 0.5
POLL_RECORDS_MAX: Final = 100


class EventStream(ServerSent):
    """Follows a trajectory to its end."""

    def __init__(
        self, log: Log, topic: str, trajectory_id: str, after: int, stopping: Callable[[], bool] = lambda: False
    ) -> None:
        super().__init__(stopping)
        self._log = log
        self._topic = topic
        self._key = trajectory_id.encode()
        self._after = after

    async def frames(self) -> AsyncGenerator[bytes, None]:
        loop, thread = asyncio.get_running_loop(), ThreadPoolExecutor(1, "tracklog-stream")
        reader = await loop.run_in_executor(thread, self._reader)
        accepted = Accepted(self._key)
        try:
            while True:
                text = b"".join(self._frames(accepted, await loop.run_in_executor(thread, poll, reader)))
                yield text
                if b"event: TaskEnded\n" in text:
                    return
        finally:
            thread.submit(reader.close)  # behind a poll that is under way
            thread.shutdown(wait=False)

    def _reader(self) -> Reader:
        partition = partition_of(self._key, self._log.partition_count(self._topic))
        first = self._log.bounds(self._topic, partition).first
        return self._log.reader(self._topic, {partition: first}, follows=True)

    def _frames(self, accepted: Accepted, records: list[Record]) -> Iterator[bytes]:
        for record in records:
            for event, _ in accepted.of(record):
                if event.envelope.seq > self._after:
                    data = orjson.dumps(event_map(event, record))
                    yield b"id: %d\nevent: %s\ndata: %s\n\n" % (event.envelope.seq, event.name.encode(), data)


def poll(reader: Reader) -> list[Record]:
    return reader.poll(POLL_RECORDS_MAX, POLL_S)
