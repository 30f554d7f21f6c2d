"""Writing one trajectory: claim, append, barrier, release (DESIGN §5, §8 rules 1 to 3).

    async with EventProducer(log, topics=topics, clock=clock, entropy=entropy) as producer:
        async with await producer.claim("trip-1", owner="agent-7", driver=Driver.LIBRARY) as writer:
            await writer.append(TaskStarted(...))
            await writer.barrier()

`append` is pipelined and `barrier` waits. Success is never assumed: a report that does not come, or says
time-out, means *unknown*, and the log is read until it has decided. A writer that was overtaken raises
Fenced from then on, and so does every later call: its view is worth nothing any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, Self, TypeVar

from tracklog.producers.guard import Guard
from tracklog.producers.pipeline import Entry, Pipeline
from tracklog.producers.track import Own
from tracklog.schemas.codec import encode_event
from tracklog.schemas.errors import (
    AppendRefused,
    ClientFatal,
    Fenced,
    InvalidEvent,
    LogUnavailable,
    TracklogError,
    Undecided,
)
from tracklog.schemas.events import EventBody, OwnershipClaimed, OwnershipReleased
from tracklog.schemas.lifecycle import EXT_PARKED, Parked
from tracklog.schemas.spawn import EXT_WAITS
from tracklog.schemas.stamp import Stamp, trajectory_prefix
from tracklog.schemas.state import State
from tracklog.schemas.topics import Barrier
from tracklog.schemas.values import InboxId, Ref, Value

if TYPE_CHECKING:
    from tracklog.producers.producer import EventProducer

V = TypeVar("V", bound=Value)

REFUSALS_MAX: Final = 3
"""How often in a row an append that the log refused is tried again before the refusal is raised."""
RECONCILE_PAUSE_S: Final = 0.02
"""Between two looks at a log that has not decided yet."""

_NO_RELEASE: Final = (Fenced, Undecided, LogUnavailable, ClientFatal)
"""Errors after which a release would be void, or would wait in vain."""

_NO_EXT: Final[Mapping[str, str]] = {}


class Appended(NamedTuple):
    """An event that is under way. It is durable after the next barrier, and not before."""

    seq: int
    hash: bytes


class Takes(NamedTuple):
    """The record of the inbox that an event takes, and where it lies. `causes` are the events that it follows from,
    `lamport` the largest Lamport time among them."""

    inbox_id: InboxId
    position: int
    causes: tuple[Ref, ...] = ()
    lamport: int = 0


class TrajectoryWriter:
    """The owner's hand on one trajectory. Made by `EventProducer.claim`; not to be shared between tasks."""

    def __init__(
        self,
        producer: EventProducer,
        state: State,
        claim: OwnershipClaimed,
        tenant: str,
        *,
        takes: Takes | None = None,
        ext: Mapping[str, str] | None = None,
    ) -> None:
        self.trajectory_id: Final = state.trajectory_id
        self.tenant: Final = tenant
        self.state: State = state
        """As accepted at the claim, then at the latest `confirm`."""
        self._producer = producer
        self._claim = claim
        self._claim_takes = takes
        self._claim_ext = _NO_EXT if ext is None else ext
        self._key = state.trajectory_id.encode()
        self._prefix = trajectory_prefix(state.trajectory_id, tenant)
        self._epoch = state.head.epoch
        self._seq = state.head.seq
        self._hash = state.head.hash
        self._turn = state.turn
        self._lamport = state.lamport
        self._guard = Guard(state)
        self._pipeline = Pipeline()
        self._over: TracklogError | None = None

    @property
    def epoch(self) -> int:
        """The epoch this writer owns."""
        return self._epoch

    @property
    def nonce(self) -> bytes:
        """That of its claim: who owns the trajectory has it in the head."""
        return self._claim.nonce

    @property
    def next_seq(self) -> int:
        return self._seq + 1

    async def append(
        self,
        body: EventBody,
        *,
        turn: int | None = None,
        causes: tuple[Ref, ...] = (),
        lamport_seen: int = 0,
        inbox_id: InboxId | None = None,
        inbox_position: int | None = None,
        ext: Mapping[str, str] = _NO_EXT,
    ) -> Appended:
        """Queues the next event and returns at once; waits only while the pipeline or the log's queue is full.

        `turn` defaults to the last one; `lamport_seen` is the largest Lamport time among the causes. Raises
        Fenced, TrajectoryEnded, InvalidEvent, RecordTooLarge, Undecided.
        """
        self._check_going()
        if self._pipeline.troubled:
            await self._reconcile()
        while len(self._pipeline.entries) >= self._producer.settings.pipelined_events_max:
            await self._wait_for_report()
        if isinstance(body, OwnershipClaimed):
            raise InvalidEvent("a claim is made by EventProducer.claim", hint="claim the trajectory again")
        entry = self._chain(
            body, self._turn if turn is None else turn, causes, lamport_seen, inbox_id, inbox_position, ext
        )
        await self._send(entry)
        await self._producer.take_turns()
        return Appended(entry.seq, entry.encoded.hash)

    def cleaned(self, record: V) -> V:
        """What is left of a record without its secrets. Raises InvalidEvent for a call that cannot be made."""
        return self._producer.cleaned(record)

    async def barrier(self, level: Barrier | None = None) -> None:
        """Returns when everything appended so far is durable at the topic's level.

        `level` asks for at least that much: BarrierTooWeak when the topic gives less. Raises Fenced or
        Undecided as `append` does; then nothing may be done that rests on the barrier.
        """
        self._check_going()
        self._producer.check_barrier(level)
        clock = self._producer.clock
        began_s = clock.monotonic_s()
        while not self._pipeline.settled:
            await self._wait_for_report()
        self._producer.on_barrier(clock.monotonic_s() - began_s)

    async def confirm(self) -> State:
        """Barrier and read-back: returns the accepted state, which includes everything appended so far."""
        await self.barrier()
        track = await self._producer.track_of(self.trajectory_id)
        if not track.accepted(self._seq, self._hash):
            raise self._end(self._fenced(track.state))
        self.state = track.state
        return track.state

    async def release(self, reason: str = "", *, parked: Parked | None = None, waits_for: str = "") -> None:
        """Barrier, `OwnershipReleased`, barrier. The writer cannot be used afterwards.

        `parked` says why it is let go of, for whoever decides when it goes on; `waits_for` is the trajectory that it
        waits for, where it is one.
        """
        await self.barrier()
        body = OwnershipReleased(owner=self._claim.owner, nonce=self._claim.nonce, reason=reason)
        ext = {} if parked is None else {EXT_PARKED: parked.value}
        await self.append(body, ext={**ext, EXT_WAITS: waits_for} if waits_for else ext)
        await self.barrier()
        self._end(InvalidEvent(f"the writer of {self.trajectory_id!r} has released it", hint="claim it again"))
        self._producer.forget(self.trajectory_id)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Releases, unless it is not this writer's to release any more or nobody may wait for it.

        So a failed step leaves no claim behind. After a cancellation, or with a log that does not answer, the
        claim stays: the next owner's claim ends it. What the release itself fails with is raised after a clean
        exit, and noted on the error otherwise.
        """
        cancelled = error is not None and not isinstance(error, Exception)
        if self._over is not None or cancelled or isinstance(error, _NO_RELEASE):
            return
        try:
            await self.release("" if error is None else type(error).__name__)
        except TracklogError as failed:
            if error is None:
                raise
            error.add_note(f"{self.trajectory_id!r} could not be released: {failed}")

    async def claim_and_read_back(self) -> None:
        """Writes the claim and waits for the log's word on it. Called once, by `EventProducer.claim`."""
        if self._claim_takes is None:
            claim = self._chain(self._claim, self._turn, (), 0, None, None, self._claim_ext)
        else:
            inbox_id, position, causes, lamport = self._claim_takes
            claim = self._chain(self._claim, self._turn, causes, lamport, inbox_id, position, self._claim_ext)
        await self._send(claim)
        await self.barrier()
        track = await self._producer.track_of(self.trajectory_id)
        claimed_epoch = self._epoch + 1
        if not track.accepted(claim.seq, claim.encoded.hash) or track.state.head.epoch > claimed_epoch:
            raise self._end(self._fenced(track.state))
        self._epoch = claimed_epoch
        self.state = track.state
        self._guard = Guard(track.state)

    def _chain(
        self,
        body: EventBody,
        turn: int,
        causes: tuple[Ref, ...],
        lamport_seen: int,
        inbox_id: InboxId | None,
        inbox_position: int | None,
        ext: Mapping[str, str],
    ) -> Entry:
        """Numbers and encodes the next event, and puts it into the pipeline."""
        body = self._producer.cleaned(body)
        seq, lamport = self._seq + 1, max(self._lamport, lamport_seen) + 1
        stamp = Stamp(
            self.trajectory_id,
            self._prefix,
            seq,
            self._epoch,
            turn,
            lamport,
            self._producer.clock.now_us(),
            self._hash,
            causes,
            inbox_id,
            inbox_position,
            ext,
        )
        encoded = encode_event(stamp, body, self._producer.framing)
        self._guard.pass_on(body)
        self._seq, self._hash, self._turn, self._lamport = seq, encoded.hash, turn, lamport
        self._producer.wrote(Own(stamp, self.tenant, body, encoded))
        entry = self._producer.entry(self._pipeline, seq, self._epoch, encoded)
        self._pipeline.entries.append(entry)
        return entry

    async def _send(self, entry: Entry) -> None:
        entry.reported, entry.error = False, None
        try:
            if not self._producer.queue(self._key, entry):
                await self._producer.queue_patiently(self._key, entry)
        except TracklogError as error:
            raise self._end(error) from None
        except asyncio.CancelledError:
            self._pipeline.abandon(entry)
            raise

    async def _wait_for_report(self) -> None:
        if self._pipeline.troubled:
            await self._reconcile()
        elif self._pipeline.entries:
            await self._pipeline.until_moved()

    async def _reconcile(self) -> None:
        """Reads until the log has decided about everything under way (DESIGN §8, 2).

        What was accepted leaves the pipeline; the rest is appended again, the same bytes from the first
        one that is missing. Raises Fenced when one of them is excluded, AppendRefused when the log keeps
        refusing, Undecided when the bound runs out.
        """
        deadline = self._producer.clock.monotonic_s() + self._producer.settings.reconcile_timeout_s
        refusals = 0
        while True:
            while not self._pipeline.all_reported:
                await self._pipeline.until_moved()
            refused = self._pipeline.first_error(AppendRefused)
            under_way = len(self._pipeline.entries)
            try:
                await self._drop_accepted()
            except LogUnavailable as error:
                await self._pause(deadline, error)
                continue
            if not self._pipeline.entries:
                self._pipeline.troubled = False
                return
            got_on = len(self._pipeline.entries) < under_way
            refusals = 0 if got_on or refused is None else refusals + 1
            if refused is not None and refusals > REFUSALS_MAX:
                raise self._end(refused)
            await self._pause(deadline, refused)
            for entry in tuple(self._pipeline.entries):
                await self._send(entry)

    async def _pause(self, deadline: float, cause: TracklogError | None) -> None:
        """Between two looks at the log, up to the bound."""
        if self._producer.clock.monotonic_s() > deadline:
            raise self._end(self._undecided()) from cause
        await asyncio.sleep(RECONCILE_PAUSE_S)

    async def _drop_accepted(self) -> None:
        track = await self._producer.track_of(self.trajectory_id)
        entries = self._pipeline.entries
        while entries and track.accepted(entries[0].seq, entries[0].encoded.hash):
            entries.popleft()
        if entries and track.excluded(entries[0].seq, entries[0].epoch, entries[0].encoded.hash):
            raise self._end(self._fenced(track.state))

    def _check_going(self) -> None:
        if self._over is not None:
            raise self._over

    def _end(self, error: TracklogError) -> TracklogError:
        self._over = error
        return error

    def _fenced(self, state: State) -> Fenced:
        return Fenced(
            f"trajectory {self.trajectory_id!r} was taken over: epoch {self._epoch} is not its owner's any more, "
            f"the log stands at epoch {state.head.epoch}, seq {state.head.seq}",
            hint="forget what this writer knew and claim again if the work is still yours",
        )

    def _undecided(self) -> Undecided:
        first = self._pipeline.entries[0]
        return Undecided(
            f"the log has not decided about {len(self._pipeline.entries)} events of {self.trajectory_id!r} from seq "
            f"{first.seq} on within {self._producer.settings.reconcile_timeout_s:g} s; they may or may not be there",
            hint="when the log answers again, claim the trajectory: the claim settles it",
        )
