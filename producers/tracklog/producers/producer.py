"""One per process: the log's producer, the view of what was accepted, and the claims (DESIGN §5)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Self, TypeVar

from tracklog.infra.blobs import BlobStore
from tracklog.infra.clock import Clock, Entropy
from tracklog.infra.log.port import Log
from tracklog.infra.settings import WriterSettings
from tracklog.infra.topic_admin import check_barrier
from tracklog.producers.deliveries import Deliveries
from tracklog.producers.history import History
from tracklog.producers.pipeline import Entry, Pipeline
from tracklog.producers.spans import Index
from tracklog.producers.track import Own, Track
from tracklog.producers.view import LogView
from tracklog.producers.writer import Takes, TrajectoryWriter
from tracklog.schemas.codec import Encoded, Framing, single_object
from tracklog.schemas.errors import (
    ClaimLost,
    Fenced,
    InvalidEvent,
    LogQueueFull,
    TrajectoryFaulty,
)
from tracklog.schemas.events import OwnershipClaimed
from tracklog.schemas.head import Head
from tracklog.schemas.limits import ACCEPTED_WINDOW
from tracklog.schemas.redacting import redacted
from tracklog.schemas.redaction import Redaction
from tracklog.schemas.state import State
from tracklog.schemas.topics import Barrier, Topics
from tracklog.schemas.values import Driver, Value, check_trajectory_id

V = TypeVar("V", bound=Value)

TENANT_DEFAULT: Final = "default"
APPENDS_A_TURN: Final = 64
"""Appends after which others get their turn of the event loop, reports first: what is acknowledged is let go, and
a task that only appends does not keep everybody else waiting."""
QUEUE_RETRY_S: Final = 0.1
"""How long an append waits for a report before it tries a full queue again."""


class EventProducer:
    """Shared by all trajectories of a process; its methods are called from one event loop."""

    def __init__(
        self,
        log: Log,
        *,
        topics: Topics,
        clock: Clock,
        entropy: Entropy,
        settings: WriterSettings | None = None,
        framing: Framing = single_object,
        redaction: Redaction | None = None,
    ) -> None:
        """`redaction`: what is taken out of every event before it is numbered and hashed."""
        self.redaction: Final = redaction
        self.clock: Final = clock
        self.settings: Final = settings if settings is not None else WriterSettings()
        self.framing: Final = framing
        self._log = log
        self._topic = topics.events
        self._entropy = entropy
        self._level: Barrier = "none"
        self.on_barrier: Callable[[float], object] = lambda _: None
        """Told how many seconds a writer waited for a barrier."""
        self._since_turn = 0
        self._deliveries: Deliveries
        self._view: LogView

    async def __aenter__(self) -> Self:
        """Looks at the topic. Raises TopicMissing, LogUnavailable, BarrierTooWeak."""
        info = await asyncio.to_thread(self._log.describe, self._topic)
        self._level = info.barrier
        if self.settings.barrier != "strongest":
            self.check_barrier(self.settings.barrier)
        self._deliveries = Deliveries(asyncio.get_running_loop())
        self._view = LogView(
            self._log,
            self._topic,
            clock=self.clock,
            window=self.settings.pipelined_events_max + ACCEPTED_WINDOW,
            timeout_s=self.settings.reconcile_timeout_s,
        )
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._view.close()

    @property
    def level(self) -> Barrier:
        """What a barrier on this topic gives."""
        return self._level

    async def prefetch(self, trajectory_ids: Iterable[str]) -> dict[str, State]:
        """The accepted states of trajectories, by one scan for all; claims of them then need none."""
        ids = [check_trajectory_id(one) for one in trajectory_ids]
        return {one: track.state for one, track in (await self._view.refresh(ids)).items()} if ids else {}

    async def claim(
        self,
        trajectory_id: str,
        *,
        owner: str,
        driver: Driver,
        tenant: str | None = None,
        reason: str = "",
        takes: Takes | None = None,
        ext: Mapping[str, str] | None = None,
        onto: Head | None = None,
    ) -> TrajectoryWriter:
        """Becomes the owner: appends a claim with a fresh nonce and reads back that it was accepted.

        `tenant` None takes the trajectory's own, or `default` for a new one. `takes` is a record of
        the inbox that the claim takes; `ext` goes into its envelope. With `onto` only this head is followed: what was
        decided about it holds when the claim is accepted. Raises ClaimLost when somebody
        was first (claim again if that is wanted), TrajectoryFaulty, Undecided, InvalidTrajectoryId.
        """
        track = await self.track_of(check_trajectory_id(trajectory_id))
        state = track.state
        if onto is not None and state.head.hash != onto.hash:
            raise ClaimLost(
                f"trajectory {trajectory_id!r} stands at seq {state.head.seq}, not at {onto.seq} any more",
                hint="look at it again",
            )
        if state.fault is not None:
            raise TrajectoryFaulty(
                f"trajectory {trajectory_id!r} is parked: event {state.fault.seq} is {state.fault.verdict}",
                hint=f"look at it with: tracklog verify {trajectory_id}",
            )
        body = OwnershipClaimed(owner=owner, nonce=self._entropy.nonce(), driver=driver, reason=reason)
        writer = TrajectoryWriter(self, state, body, _tenant(state, tenant), takes=takes, ext=ext)
        try:
            await writer.claim_and_read_back()
        except Fenced as error:
            raise ClaimLost(
                f"the claim of trajectory {trajectory_id!r} came second: {error.message}",
                hint="the other owner goes on with it; claim again to take it over",
            ) from None
        return writer

    async def history(
        self, trajectory_id: str, *, from_checkpoint: BlobStore | None = None, since: int | None = None
    ) -> History:
        """The accepted state and events, read to the present end. They are kept until `close_history`, so that
        whoever opens a trajectory reads the log once: history, claim, and history again.

        With the blob store of its checkpoints, events before the last one are left out when nothing rests on them.
        `since`: an offset before which it has no record, as the caller has read in the log itself; it holds until the
        trajectory is forgotten.
        """
        if since is not None:
            self._view.starts_at(check_trajectory_id(trajectory_id), since)
        track = (await self._view.refresh((check_trajectory_id(trajectory_id),), record=True))[trajectory_id]
        await asyncio.to_thread(track.open, from_checkpoint)
        return History(track.state, track.history(), None if track.shortcut is None else track.shortcut.recall)

    def index(self, partition: int, index: Index | None) -> None:
        """Where the trajectories of a partition lie, as the caller has read all of it in the log itself; None: it is
        not to be known any more."""
        self._view.index(partition, index)

    async def whole_history(self, trajectory_id: str) -> History:
        """The same with what was left out, once there was a `history`."""
        track = (await self._view.refresh((trajectory_id,), record=True))[trajectory_id]
        await asyncio.to_thread(track.complete)
        return await self.history(trajectory_id)

    async def news(self, trajectory_id: str) -> History:
        """The accepted state, read to the present end, with the events accepted since this was last asked; the first
        time, and after the trajectory was forgotten, with all of them. They are kept until they are asked for.

        When it is cancelled, events may be lost to the caller: forget the trajectory then.
        """
        track = (await self._view.refresh((check_trajectory_id(trajectory_id),), record=True))[trajectory_id]
        await asyncio.to_thread(track.open, None)
        return History(track.state, track.drain())

    def close_history(self, trajectory_id: str) -> None:
        """Keeps no more events of a trajectory than its state needs."""
        self._view.stop_recording(trajectory_id)

    def forget(self, trajectory_id: str) -> None:
        """Stops following a trajectory."""
        self._view.forget(trajectory_id)

    async def track_of(self, trajectory_id: str) -> Track:
        """What the log has accepted of a trajectory, read to the present end."""
        return (await self._view.refresh((trajectory_id,)))[trajectory_id]

    def check_barrier(self, level: Barrier | None) -> None:
        """Raises BarrierTooWeak when more is asked for than the topic gives."""
        if level is not None:
            check_barrier(self._topic, self._level, level)

    def cleaned(self, record: V) -> V:
        """A body of an event, or of a record that becomes one, as it may be written. Raises InvalidEvent for a call
        whose arguments may not."""
        return record if self.redaction is None else redacted(record, self.redaction)

    def entry(self, pipeline: Pipeline, seq: int, epoch: int, encoded: Encoded) -> Entry:
        """An event on its way; its report comes back to the pipeline."""
        return Entry(pipeline, seq, epoch, encoded, self._deliveries.take)

    def wrote(self, own: Own) -> None:
        """Remembers an event of one's own for when it is read back."""
        self._view.wrote(own)

    def queue(self, key: bytes, entry: Entry) -> bool:
        """Queues an entry; False when the log's queue is full. Raises what an append raises."""
        value, headers, _ = entry.encoded
        try:
            self._log.append(self._topic, key, value, headers, entry.delivered)
        except LogQueueFull:
            return False
        self._since_turn += 1
        return True

    async def queue_patiently(self, key: bytes, entry: Entry) -> None:
        """As `queue`, waiting for room. Raises LogQueueFull when there is none for the delivery time-out."""
        deadline = self.clock.monotonic_s() + self.settings.delivery_timeout_s
        room = self._deliveries.room
        while True:
            room.clear()
            if self.queue(key, entry):
                return
            if self.clock.monotonic_s() > deadline:
                raise LogQueueFull(
                    f"the queue of {self._log.url} stayed full for {self.settings.delivery_timeout_s:g} s",
                    hint="is the log reachable? writer.queue_records_max bounds the queue",
                )
            await _wait_for_room(room)

    async def take_turns(self) -> None:
        """Now and then lets the other tasks of the event loop run, delivery reports first."""
        if self._since_turn >= APPENDS_A_TURN:
            self._since_turn = 0
            await asyncio.sleep(0)


async def _wait_for_room(room: asyncio.Event) -> None:
    """Until a delivery report makes room, or a moment has passed and the queue is worth another try."""
    try:
        await asyncio.wait_for(room.wait(), QUEUE_RETRY_S)
    except TimeoutError:
        return


def _tenant(state: State, asked: str | None) -> str:
    if state.tenant and asked is not None and asked != state.tenant:
        raise InvalidEvent(
            f"trajectory {state.trajectory_id!r} belongs to tenant {state.tenant!r}, not to {asked!r}",
            hint="a trajectory never changes its tenant",
        )
    return state.tenant or asked or TENANT_DEFAULT
