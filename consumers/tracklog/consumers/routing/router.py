"""The router: says into inboxes what time and other trajectories have to say (DESIGN §9).

    timer by the clock      TimerDue when it is due
    request for approval    a Decision that it has expired, when nobody decided in time
    message                 to the trajectory that it is for, in the order of its sender, with its cause
    child run               its Submit; its Cancel when its parent is cancelled or ends; its end, to the parent

The partition loop's thread folds the agenda into Redis; the event loop looks at the agendas of the partitions that are
owned, several times a second, and posts. What is durable in an inbox is taken off the agenda, so nothing is kept in
memory. Everything posted has its identity from the event that it rests on, so it may be posted again, after a crash or
by two routers at once: it is taken once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from typing import Final, NamedTuple

from tracklog.consumers.routing.deliveries import Delivery, delivery_of
from tracklog.infra.clock import Clock
from tracklog.infra.log.port import Log
from tracklog.infra.log.ranges import read_range
from tracklog.infra.log.trimmed import beginning_trimmed
from tracklog.infra.partition_thread import owning
from tracklog.infra.redis_client import RedisClient
from tracklog.infra.redis_script import ask
from tracklog.processors.agenda import DUE, OUTBOX, Entry, TrajectoryAgenda, entry_of
from tracklog.processors.outbox import Post, post_of
from tracklog.processors.running import Running
from tracklog.producers.approvals import EXPIRY
from tracklog.producers.post import Poster
from tracklog.schemas.codec import Event, Framing, decode_event, single_object
from tracklog.schemas.errors import ForeignRecord, InputError, LogError, StoreError
from tracklog.schemas.inbox import Cancel, Decision, InboxBody, Message, Outcome, Submit, TimerDue
from tracklog.schemas.topics import Topics
from tracklog.schemas.values import Choice, InboxId, Ref

__all__ = ["Router"]

LOOK_S: Final = 0.1
AT_ONCE_MAX: Final = 500
"""Entries of one partition that one look takes up."""
SPED_MAX: Final = 10_000
"""Entries of one partition that one look takes up when time goes faster."""
AWAY_S: Final = 1.0
"""The pause after the log or Redis was away."""
_US_PER_MS: Final = 1000


class Counts(NamedTuple):
    """What this process has posted."""

    timers: int = 0
    expiries: int = 0
    messages: int = 0
    children: int = 0
    cancels: int = 0
    outcomes: int = 0
    undelivered: int = 0


class Router:
    """Made and run on one event loop. `running` is the agenda's projection over this log and Redis."""

    def __init__(
        self,
        log: Log,
        topics: Topics,
        client: RedisClient,
        running: Running[TrajectoryAgenda],
        *,
        clock: Clock,
        framing: Framing = single_object,
        speed: float = 1.0,
    ) -> None:
        """`speed`, for tests: how many times as fast what was set becomes due. Then all that is set is looked at each
        time, at most SPED_MAX of a partition."""
        self._log = log
        self._topics = topics
        self._client = client
        self._running = running
        self._clock = clock
        self._poster = Poster(log, topics, clock=clock, framing=framing)
        self._speed = speed
        self.counts = Counts()

    async def run(self, stop: asyncio.Event) -> None:
        """Works until `stop` is set. Raises what ended the partition loop."""
        async with owning(self._running.loop, self._running.group) as ended:
            while not stop.is_set() and not ended.is_set():
                pause_s = await self._look_patiently()
                with suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), pause_s)

    async def _look_patiently(self) -> float:
        """One look; how long to pause after it."""
        try:
            await self.look()
        except (LogError, StoreError):
            return AWAY_S
        return LOOK_S

    async def look(self, partitions: Iterable[int] | None = None) -> None:
        """Posts what is due now of these partitions, or of those that are owned. Raises LogError, StoreError."""
        for partition in list(self._running.loop.positions if partitions is None else partitions):
            due, outbox = await asyncio.to_thread(self._agenda, partition)
            await asyncio.gather(*(self._say(partition, member) for member in due))
            await self._deliver(partition, outbox)

    def _agenda(self, partition: int) -> tuple[list[bytes], list[bytes]]:
        keys, now_ms = self._running.store.keys, self._clock.now_us() // _US_PER_MS
        until, most = (now_ms, AT_ONCE_MAX) if self._speed == 1 else ("+inf", SPED_MAX)
        due, outbox = ask(
            self._client,
            [
                ("ZRANGEBYSCORE", keys.key(partition, DUE), "-inf", until, "LIMIT", 0, most),
                ("ZRANGE", keys.key(partition, OUTBOX), 0, AT_ONCE_MAX - 1),
            ],
        )
        return [member for member in due if self._is_due(entry_of(member), now_ms)], outbox

    def _is_due(self, entry: Entry, now_ms: int) -> bool:
        """By the time that has passed since it was set, which so many times as much has passed for it."""
        if self._speed == 1:
            return True
        return (now_ms - entry.since_ms) * self._speed >= entry.due_us / _US_PER_MS - entry.since_ms

    async def _say(self, partition: int, member: bytes) -> None:
        entry = entry_of(member)
        if entry.is_timer:
            body: InboxBody = TimerDue(timer_id=entry.name, due_at=entry.due_us)
            inbox_id = InboxId(source="timer", seq=entry.seq)
        else:
            body, inbox_id = _expired(entry), InboxId(source=f"expiry/{entry.lane}", seq=entry.seq)
        cause = Ref(trajectory_id=entry.trajectory_id, seq=entry.seq)
        await self._poster.post(entry.trajectory_id, body, inbox_id=inbox_id, tenant=entry.tenant, causes=(cause,))
        counted = "timers" if entry.is_timer else "expiries"
        self.counts = self.counts._replace(**{counted: getattr(self.counts, counted) + 1})
        await self._take_off(partition, DUE, member)

    async def _deliver(self, partition: int, outbox: list[bytes]) -> None:
        """Messages of one sender one after the other, those of several side by side."""
        by_sender: dict[str, list[tuple[bytes, Post]]] = {}
        for member in outbox:
            post = post_of(member)
            by_sender.setdefault(post.trajectory_id, []).append((member, post))
        await asyncio.gather(*(self._deliver_all(partition, posts) for posts in by_sender.values()))

    async def _deliver_all(self, partition: int, posts: Iterable[tuple[bytes, Post]]) -> None:
        for member, post in posts:
            event = await asyncio.to_thread(self._event_at, partition, post)
            delivery = delivery_of(event, post) if event is not None else None
            if event is not None and delivery is not None:
                await self._send(delivery, event.envelope.tenant)
            await self._take_off(partition, OUTBOX, member)

    async def _take_off(self, partition: int, name: str, member: bytes) -> None:
        """After it is durable in an inbox: a crash in between posts it again."""
        key = self._running.store.keys.key(partition, name)
        await asyncio.to_thread(ask, self._client, [("ZREM", key, member)])

    async def _send(self, delivery: Delivery, tenant: str) -> None:
        to, body, inbox_id, cause, lamport, ext = delivery
        counted = _COUNTED[type(body)]
        try:
            await self._poster.post(
                to, body, inbox_id=inbox_id, tenant=tenant, causes=(cause,), lamport=lamport, ext=ext
            )
        except InputError:  # a peer that is no trajectory: a person, who reads it in the record
            counted = "undelivered"
        self.counts = self.counts._replace(**{counted: getattr(self.counts, counted) + 1})

    def _event_at(self, partition: int, post: Post) -> Event | None:
        """Raises TrajectoryTrimmed when it is no longer kept: what it says stays on the agenda."""
        bounds = self._log.bounds(self._topics.events, partition)
        if post.offset < bounds.first:
            raise beginning_trimmed(self._topics.events, partition, bounds.first, post.trajectory_id)
        for record in read_range(self._log, self._topics.events, partition, post.offset, post.offset + 1):
            try:
                return decode_event(record.key, record.value, record.headers)
            except ForeignRecord:
                return None
        return None


_COUNTED: Final = {Message: "messages", Submit: "children", Cancel: "cancels", Outcome: "outcomes"}


def _expired(entry: Entry) -> Decision:
    return Decision(
        call_id=entry.name,
        request_hash=bytes.fromhex(entry.hash),
        approver=EXPIRY,
        choice=Choice.EXPIRE,
        reason="nobody decided in time",
    )
