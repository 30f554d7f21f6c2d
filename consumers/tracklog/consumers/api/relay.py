"""The next reply of a trajectory as it comes: server-sent events that end with the reply that the log has.

event: started     data {"reply": 3}          a call of the model has begun
event: text        data {"text": "Hel"}
event: restarted   data {"reply": 3}          it began again, after a cut or by another owner: what came before is void
event: lost        data {}                    some text was lost between here and there
event: replied     data {...}                 the event, as `/events` shows it: the truth, and the end of the stream
event: ended       data {}                    the trajectory has ended without another reply

Everything but the last two comes through Redis and may be missing.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from typing import Any, Final

import orjson
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tracklog.consumers.api.events import poll
from tracklog.consumers.api.streams import BEAT_S, SEND_S_MAX, STREAM_S_MAX, gone
from tracklog.consumers.event_json import event_map
from tracklog.consumers.read_events import Accepted
from tracklog.infra.log.partitioner import partition_of
from tracklog.infra.log.port import Log
from tracklog.infra.redis_client import RedisClient
from tracklog.infra.token_relay import Heard, heard_since
from tracklog.schemas import events as ev
from tracklog.schemas.errors import StoreError

__all__ = ["Hub", "Telling", "TokenStream"]

LISTEN_S: Final = 0.1
AWAY_S: Final = 1.0
"""The pause after Redis was away."""
WAITING_MAX: Final = 1000
"""Records that wait for one client; a slower one loses the oldest."""


class Telling:
    """From what is heard to what a client is told. Pure. `before`: how many replies the log has already."""

    def __init__(self, before: int) -> None:
        self._before = before
        self._now: tuple[int, str] | None = None

    def frames(self, heard: Heard) -> Iterator[bytes]:
        """Nothing for a reply that the log has, and for an attempt that another one has followed."""
        if heard.reply < self._before:
            return
        about = (heard.reply, heard.attempt)
        if about != self._now and (heard.text is None or self._now is None):
            again = self._now is not None and self._now[0] == heard.reply
            self._now = about
            yield frame("restarted" if again else "started", {"reply": heard.reply})
        if heard.text is not None and about == self._now:
            yield frame("text", {"text": heard.text})


def frame(name: str, data: Any) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (name.encode(), orjson.dumps(data))


class Ear:
    """Of one client: what was heard and not told yet."""

    def __init__(self, trajectory_id: str) -> None:
        self.trajectory_id = trajectory_id
        self.place = ""
        self.lost = False
        self.heard: deque[Heard] = deque()
        self.came = asyncio.Event()

    def hear(self, new: list[Heard]) -> None:
        self.heard += new
        while len(self.heard) > WAITING_MAX:
            self.heard.popleft()
            self.lost = True
        if new:
            self.came.set()


class Hub:
    """Listens to Redis for all clients of this process at once, as long as there are any."""

    def __init__(self, client: RedisClient, prefix: str) -> None:
        self._client = client
        self._prefix = prefix
        self._ears: set[Ear] = set()
        self._task: asyncio.Task[None] | None = None

    def listen(self, trajectory_id: str) -> Ear:
        ear = Ear(trajectory_id)
        self._ears.add(ear)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())
        return ear

    def leave(self, ear: Ear) -> None:
        self._ears.discard(ear)

    async def _run(self) -> None:
        while self._ears:
            ears = list(self._ears)
            after = [(ear.trajectory_id, ear.place) for ear in ears]
            try:
                found = await asyncio.to_thread(heard_since, self._client, self._prefix, after)
            except StoreError:
                await asyncio.sleep(AWAY_S)
                continue
            for ear, (place, heard) in zip(ears, found, strict=True):
                ear.place = place
                ear.hear(heard)
            await asyncio.sleep(LISTEN_S)


class TokenStream(Response):
    """One reply. A client that reads nothing for SEND_S_MAX is let go of."""

    media_type = "text/event-stream"

    def __init__(self, hub: Hub, log: Log, topic: str, trajectory_id: str, stopping: Callable[[], bool]) -> None:
        super().__init__(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._hub = hub
        self._log = log
        self._topic = topic
        self._trajectory_id = trajectory_id
        self._stopping = stopping
        self._before: asyncio.Future[int]
        self._over = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        self._before = asyncio.get_running_loop().create_future()
        ear = self._hub.listen(self._trajectory_id)
        left, end = asyncio.create_task(gone(receive)), asyncio.create_task(self._end())
        try:
            async with asyncio.timeout(STREAM_S_MAX):
                await self._tell(ear, send, left, end)
        except TimeoutError:
            return  # the client is slow, or has had its time
        finally:
            self._hub.leave(ear)
            self._over.set()
            left.cancel()
            await asyncio.gather(left, end, return_exceptions=True)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _tell(self, ear: Ear, send: Send, left: asyncio.Task[None], end: asyncio.Task[bytes]) -> None:
        known: set[asyncio.Future[Any]] = {left, end, self._before}
        await asyncio.wait(known, return_when=asyncio.FIRST_COMPLETED)
        telling, quiet_s = Telling(self._before.result()) if self._before.done() else None, 0.0
        while not left.done() and not self._stopping():
            is_over = end.done()
            text = b"" if telling is None else b"".join(_frames(ear, telling))
            text += end.result() if is_over else b""
            quiet_s = 0.0 if text else quiet_s + LISTEN_S
            if quiet_s >= BEAT_S:
                text, quiet_s = b": still here\n\n", 0.0
            if text:
                async with asyncio.timeout(SEND_S_MAX):
                    await send({"type": "http.response.body", "body": text, "more_body": True})
            if is_over:
                return
            with suppress(TimeoutError):
                await asyncio.wait_for(ear.came.wait(), LISTEN_S)

    async def _end(self) -> bytes:
        """The last frame, when the log has it; empty when the stream was over before."""
        key = self._trajectory_id.encode()
        partition = partition_of(key, await asyncio.to_thread(self._log.partition_count, self._topic))
        bounds = await asyncio.to_thread(self._log.bounds, self._topic, partition)
        reader = await asyncio.to_thread(self._log.reader, self._topic, {partition: bounds.first})
        accepted, replies = Accepted(key), 0
        with closing(reader):
            while not self._over.is_set():
                if reader.position(partition) >= bounds.end and not self._before.done():
                    self._before.set_result(replies)
                for record in await asyncio.to_thread(poll, reader):
                    for event, _ in accepted.of(record):
                        if isinstance(event.body, ev.TaskEnded):
                            return frame("ended", {})
                        if isinstance(event.body, ev.ModelReplied) and record.offset >= bounds.end:
                            return frame("replied", event_map(event, record))
                        replies += isinstance(event.body, ev.ModelReplied)
        return b""


def _frames(ear: Ear, telling: Telling) -> Iterator[bytes]:
    ear.came.clear()
    if ear.lost:
        ear.lost = False
        yield frame("lost", {})
    while ear.heard:
        yield from telling.frames(ear.heard.popleft())
