"""Recording for clients in other languages: what they give is in once, whichever replica they ask (DESIGN §4, §5).

A request is answered from the log alone. Each pass reads the trajectory to its present end, then does what is missing:
the claim, the events that are not in. The last pass finds all of them accepted, and that is the answer; so it is the
same for the same request at any time, at any replica, also when the one that appended died before it could answer.

Two replicas may do the same request at once: one claim is accepted, and what the other has under way is fenced by it.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final, NamedTuple

from tracklog.consumers.ingest.admission import Asked, Author, check_free, check_next, found_of, is_seen, may_record
from tracklog.consumers.ingest.given import BarrierAsked, Batch, GivenEvent, Release, Start
from tracklog.consumers.ingest.planning import Item, items_of, plan
from tracklog.consumers.ingest.recording import EXT_LEASE, In, Recording
from tracklog.infra.blobs import BlobStore
from tracklog.infra.clock import Clock, Entropy
from tracklog.infra.log.port import Log
from tracklog.infra.settings import IngestSettings, WriterSettings
from tracklog.producers.importers.plan import PlannedEvent
from tracklog.producers.importers.storing import Storing
from tracklog.producers.producer import EventProducer
from tracklog.producers.writer import TrajectoryWriter
from tracklog.schemas import limits
from tracklog.schemas.codec import Framing, encode_event, single_object
from tracklog.schemas.errors import (
    BarrierTooWeak,
    ClaimLost,
    Fenced,
    InputError,
    InvalidEvent,
    LeaseHeld,
    LogUnavailable,
    TracklogError,
    TrajectoryEnded,
    TrajectoryFaulty,
    Undecided,
    WriterError,
)
from tracklog.schemas.redaction import Redaction
from tracklog.schemas.stamp import Stamp, trajectory_prefix
from tracklog.schemas.state import State
from tracklog.schemas.topics import Topics
from tracklog.schemas.values import ZERO_HASH, Driver, InboxId, Ref

__all__ = ["Author", "Ingest", "Recorded"]

PASSES_MAX: Final = 12
"""Three do when nobody interferes. Each lost claim takes one more; with so many another replica is at the same."""
SURE_TO_FIT_BYTES: Final = (limits.EVENT_BYTES_MAX - 16 * 1024) // 2
"""Of an event as it was given: below it, it fits however it is kept (the calls of a reply are kept twice)."""
IDLE_S_MAX: Final = 600.0
"""Seconds after which a trajectory that nobody asked for is not kept at hand."""
SEND_AGAIN: Final = "send the same again: it is taken once"
_US_PER_MS: Final = 1000
_NOTHING_WRITTEN: Final = (InputError, LeaseHeld, TrajectoryEnded, TrajectoryFaulty, BarrierTooWeak)
"""Errors before anything was appended: what is known of the trajectory stays good."""


class Recorded(NamedTuple):
    """The answer: the seqs of the events in their order, and of the last of them the epoch, the place
    (PARTITION:OFFSET) and the hash."""

    trajectory_id: str
    first: int
    next: int
    epoch: int
    seqs: list[int]
    seen: str
    hash: str


class _Open:
    """A trajectory at hand. The lock is held by the one request that works on it."""

    def __init__(self, trajectory_id: str, blobs: BlobStore) -> None:
        self.trajectory_id = trajectory_id
        self.lock = asyncio.Lock()
        self.users = 0
        self.used_s = 0.0
        self.recording = Recording(blobs)
        self.state = State(trajectory_id)
        self.writer: TrajectoryWriter | None = None


class Ingest:
    """Of one process; its methods are called from one event loop. The log is looked at when it is first used."""

    def __init__(
        self,
        log: Log,
        topics: Topics,
        blobs: BlobStore,
        *,
        clock: Clock,
        entropy: Entropy,
        settings: IngestSettings,
        writer: WriterSettings | None = None,
        framing: Framing = single_object,
        body_inline_bytes_max: int = limits.BODY_INLINE_BYTES_MAX,
        redaction: Redaction | None = None,
    ) -> None:
        self._settings = settings
        self._blobs = blobs
        self._clock = clock
        self._storing = Storing(blobs, body_inline_bytes_max)
        self._producer = EventProducer(
            log, topics=topics, clock=clock, entropy=entropy, settings=writer, framing=framing, redaction=redaction
        )
        self._starting = asyncio.Lock()
        self._started = False
        self._open: OrderedDict[str, _Open] = OrderedDict()

    async def start(self, author: Author, given: Start) -> Recorded:
        """Begins a trajectory. Raises as `append`, and InvalidEvent when the id is taken."""
        asked = Asked(author, given.tenant, self._lease_s(given.lease_s), items_of(0, [given]))
        found = await self._record(given.id, asked, given.barrier)
        if found is None:
            raise InvalidEvent(f"a trajectory cannot begin under the id {given.id!r}", hint="give it another one")
        return found

    async def append(self, author: Author, trajectory_id: str, given: Batch) -> Recorded | None:
        """Records events, each once. None when there is no such trajectory that the author may see.

        Raises InputError for an event that makes no sense, InvalidEvent and TrajectoryEnded for one that cannot follow,
        both with its index in `details` and with nothing appended; LeaseHeld; BarrierTooWeak; TrajectoryFaulty. What
        else is raised leaves it open whether the events are in: asking again with the same settles it.
        """
        self._check_count(given.events)
        asked = Asked(author, None, self._lease_s(given.lease_s), items_of(given.first, given.events))
        return await self._record(trajectory_id, asked, given.barrier)

    async def release(self, author: Author, trajectory_id: str, given: Release) -> bool:
        """Lets go of a trajectory, so that another client may go on with it at once. False when there is none.

        Raises LeaseHeld when another client has it.
        """
        async with self._at_hand(trajectory_id) as one:
            for _ in range(PASSES_MAX):
                await self._refresh(one)
                if not is_seen(one.state, author):
                    return False
                check_free(one.recording, one.state, author.owner, self._now_ms())
                if one.recording.lease.owner != author.owner:
                    return True
                writer = self._own_writer(one)
                try:
                    if writer is None:
                        await self._claim(one, author.owner, None, one.recording.lease.lease_s)
                        continue
                    await writer.release("released by its client")
                    return True
                except (Fenced, ClaimLost):
                    one.writer = None
        raise _restless(trajectory_id)

    async def close(self) -> None:
        """Releases nothing: a lease is its client's, who goes on at another replica."""
        if self._started:
            await self._producer.__aexit__(None, None, None)

    async def _record(self, trajectory_id: str, asked: Asked, barrier: BarrierAsked | None) -> Recorded | None:
        async with self._at_hand(trajectory_id) as one:
            self._producer.check_barrier(barrier)
            for _ in range(PASSES_MAX):
                await self._refresh(one)
                if not may_record(one.recording, one.state, asked):
                    return None
                found = found_of(one.recording, asked)
                if len(found) == len(asked.items):
                    await self._leave(one)
                    return _answer(trajectory_id, asked, found)
                check_next(one.recording, one.state, asked, asked.items[len(found) :], self._now_ms())
                writer = self._writer_of(one, asked)
                try:
                    if writer is None:
                        await self._claim(one, asked.author.owner, asked.tenant, asked.lease_s)
                    else:
                        await self._append(one, writer, asked, asked.items[len(found) :])
                except (Fenced, ClaimLost):
                    one.writer = None
        raise _restless(trajectory_id)

    # One trajectory at hand.

    @asynccontextmanager
    async def _at_hand(self, trajectory_id: str) -> AsyncIterator[_Open]:
        """Nobody else in this process works on it meanwhile. Raises Undecided when the bound runs out."""
        await self._ready()
        one = self._open.get(trajectory_id) or _Open(trajectory_id, self._blobs)
        self._open[trajectory_id] = one
        self._open.move_to_end(trajectory_id)
        one.users += 1
        one.used_s = self._clock.monotonic_s()
        try:
            async with asyncio.timeout(self._settings.answer_s):
                async with one.lock:
                    try:
                        yield one
                    except _NOTHING_WRITTEN:
                        raise
                    except BaseException as error:
                        self._forget(one)
                        if isinstance(error, TracklogError):
                            error.hint = SEND_AGAIN
                        raise
        except TimeoutError:
            raise Undecided(
                f"the log has not decided about {trajectory_id!r} within {self._settings.answer_s:g} s: what was sent "
                "may or may not be there",
                hint=SEND_AGAIN,
            ) from None
        finally:
            one.users -= 1
            self._evict()

    async def _ready(self) -> None:
        async with self._starting:
            if not self._started:
                await self._producer.__aenter__()
                self._started = True

    def _forget(self, one: _Open) -> None:
        """What is known of it may be incomplete: it is read again."""
        one.recording, one.writer = Recording(self._blobs), None
        self._producer.forget(one.trajectory_id)

    def _evict(self) -> None:
        """Lets go of those that were asked for longest ago: what others append to them meanwhile is kept here too."""
        now_s, surplus = self._clock.monotonic_s(), len(self._open) - self._settings.trajectories_max
        for trajectory_id, one in [*self._open.items()]:
            if surplus <= 0 and now_s - one.used_s <= IDLE_S_MAX:
                return
            if not one.users:
                surplus -= 1
                del self._open[trajectory_id]
                self._producer.forget(trajectory_id)

    async def _refresh(self, one: _Open) -> None:
        news = await self._producer.news(one.trajectory_id)
        one.state = news.state
        await asyncio.to_thread(one.recording.take, news.accepted)

    def _lease_s(self, asked: int | None) -> int:
        if asked is not None and asked > self._settings.lease_s_max:
            raise InputError(
                f"a lease of {asked} s is longer than {self._settings.lease_s_max} s, which is the longest",
                details={"field": "lease_s"},
            )
        return self._settings.lease_s if asked is None else asked

    def _check_count(self, events: Sequence[GivenEvent]) -> None:
        most = self._settings.batch_events_max
        if len(events) > most:
            raise InputError(f"{len(events)} events are more than one request may have", hint=f"at most {most}")

    def _now_ms(self) -> int:
        return self._clock.now_us() // _US_PER_MS

    def _own_writer(self, one: _Open) -> TrajectoryWriter | None:
        """That of this process, when the log says that it is the owner."""
        return one.writer if one.writer is not None and one.writer.nonce == one.state.head.owner else None

    def _writer_of(self, one: _Open, asked: Asked) -> TrajectoryWriter | None:
        """The same, when it was claimed for this client and with this lease."""
        lease = one.recording.lease
        same = lease.owner == asked.author.owner and lease.lease_s == asked.lease_s
        return self._own_writer(one) if same else None

    async def _claim(self, one: _Open, owner: str, tenant: str | None, lease_s: int) -> None:
        one.writer = None
        one.writer = await self._producer.claim(
            one.trajectory_id,
            owner=owner,
            driver=Driver.INGEST,
            tenant=tenant,
            reason="ingest",
            ext={EXT_LEASE: str(lease_s)},
            onto=one.state.head,
        )

    async def _append(self, one: _Open, writer: TrajectoryWriter, asked: Asked, missing: Sequence[Item]) -> None:
        planned = plan(missing, one.recording, one.state, asked.source, writer.next_seq, self._producer.redaction)
        self._storing.check(planned)
        stored = [one._replace(body=await self._storing.store(one)) for one in planned]
        for item, ready in zip(missing, stored, strict=True):
            self._check_fits(one, item, ready)
        for item, ready in zip(missing, stored, strict=True):
            await writer.append(
                ready.body,
                turn=ready.turn,
                causes=tuple(Ref(trajectory_id=one.trajectory_id, seq=seq) for seq in ready.causes),
                inbox_id=InboxId(source=asked.source, seq=item.number),
                ext=ready.ext,
            )
        await writer.confirm()

    def _check_fits(self, one: _Open, item: Item, ready: PlannedEvent) -> None:
        """Before anything of its batch is appended."""
        if item.size_bytes <= SURE_TO_FIT_BYTES:
            return
        prefix = trajectory_prefix(one.trajectory_id, one.state.tenant)
        stamp = Stamp(one.trajectory_id, prefix, 0, 0, ready.turn, 0, 0, ZERO_HASH, (), None, None, ready.ext)
        try:
            encode_event(stamp, ready.body)
        except TracklogError as error:
            raise InputError(
                f"event {item.place}: {error.message}",
                hint=error.hint,
                details={"index": item.place, "type": item.type},
            ) from None

    async def _leave(self, one: _Open) -> None:
        """After the end nobody owns it. What is in stays in, though its release may fail: nothing rests on that."""
        writer = self._own_writer(one)
        if one.state.ended and writer is not None:
            one.writer = None
            try:
                await writer.release("ended")
            except WriterError:
                self._forget(one)


def _answer(trajectory_id: str, asked: Asked, found: Sequence[In]) -> Recorded:
    last = found[-1]
    seqs = [one.seq for one in found]
    seen, next_number = f"{last.position.partition}:{last.position.offset}", asked.first + len(found)
    return Recorded(trajectory_id, asked.first, next_number, last.epoch, seqs, seen, last.hash.hex())


def _restless(trajectory_id: str) -> LogUnavailable:
    return LogUnavailable(
        f"trajectory {trajectory_id!r} was claimed by others {PASSES_MAX} times meanwhile",
        hint=f"{SEND_AGAIN}. Do two processes record it under one name?",
    )
