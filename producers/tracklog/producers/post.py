"""Writing to inboxes: how everyone but its owner reaches a trajectory (DESIGN §4).

A record has its identity from who sends it, so it can be sent again as often as nobody knows whether it arrived.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from tracklog.infra.clock import Clock
from tracklog.infra.log.port import Log, Position
from tracklog.producers.producer import TENANT_DEFAULT
from tracklog.schemas.codec import Encoded, Framing, encode_record, single_object
from tracklog.schemas.envelope import InboxEnvelope
from tracklog.schemas.errors import AppendError, AppendRefused, AppendUnknown, LogQueueFull
from tracklog.schemas.given import checked
from tracklog.schemas.inbox import InboxBody
from tracklog.schemas.redacting import redacted
from tracklog.schemas.redaction import Redaction
from tracklog.schemas.topics import Topics
from tracklog.schemas.values import InboxId, Ref, check_trajectory_id

__all__ = ["Poster", "append_once", "append_surely"]

POST_S_MAX: Final = 30.0
"""How long a record is tried to be sent before its sender is told that nobody knows."""
AGAIN_S: Final = 0.1


class Poster:
    """Of one process. Its methods are called from one event loop."""

    def __init__(
        self,
        log: Log,
        topics: Topics,
        *,
        clock: Clock,
        framing: Framing = single_object,
        redaction: Redaction | None = None,
    ) -> None:
        """`redaction`: what is taken out of every record before it is sent."""
        self._log = log
        self._topic = topics.inbox
        self._clock = clock
        self._framing = framing
        self._redaction = redaction

    async def post(
        self,
        trajectory_id: str,
        body: InboxBody,
        *,
        inbox_id: InboxId,
        tenant: str = TENANT_DEFAULT,
        causes: tuple[Ref, ...] = (),
        lamport: int = 0,
        ext: Mapping[str, str] | None = None,
    ) -> Position:
        """Returns when the record is durable. The same `inbox_id` again is the same record: it is taken once.

        `causes` are events that it follows from, `lamport` the largest Lamport time among them.

        Raises InvalidTrajectoryId, InvalidEvent, RecordTooLarge, TopicMissing, AppendRefused; and AppendUnknown when
        the log has not said within POST_S_MAX whether it has it: send it again.
        """
        key = check_trajectory_id(trajectory_id)
        body = body if self._redaction is None else redacted(body, self._redaction)
        with checked(f"the {type(body).__name__} for {trajectory_id!r}"):
            envelope = InboxEnvelope(
                trajectory_id=key,
                tenant=tenant,
                source=inbox_id.source,
                source_seq=inbox_id.seq,
                causes=causes,
                lamport=lamport,
                recorded_at=self._clock.now_us(),
                ext=ext if ext is not None else {},
            )
        encoded = encode_record(envelope, body, self._framing)
        return await append_surely(self._log, self._topic, trajectory_id.encode(), encoded, clock=self._clock)


async def append_surely(log: Log, topic: str, key: bytes, encoded: Encoded, *, clock: Clock) -> Position:
    """Appends the same record again while nobody knows whether it is there, for POST_S_MAX; then raises as the last
    try did. For records that are taken once however often they are there."""
    deadline_s = clock.monotonic_s() + POST_S_MAX
    while True:
        try:
            return await append_once(log, topic, key, encoded)
        except (AppendUnknown, AppendRefused, LogQueueFull):
            if clock.monotonic_s() > deadline_s:
                raise
            await asyncio.sleep(AGAIN_S)


async def append_once(log: Log, topic: str, key: bytes, encoded: Encoded) -> Position:
    """Appends a record and waits for its report. Raises what `Log.append` raises, and the AppendError reported."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[Position] = loop.create_future()

    def settle(position: Position | None, error: AppendError | None) -> None:
        if answer.done():
            return
        if position is not None:
            answer.set_result(position)
        elif error is not None:
            answer.set_exception(error)

    def delivered(position: Position | None, error: AppendError | None) -> None:
        loop.call_soon_threadsafe(settle, position, error)

    log.append(topic, key, encoded.value, encoded.headers, delivered)
    return await answer
