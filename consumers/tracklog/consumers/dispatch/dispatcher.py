"""A dispatcher: a member of the group that owns the events, and runs the tools of accepted intents (DESIGN §8).

    the partition loop's thread    follows events, and hands over which calls opened and closed
    the event loop                 has one task for each open call (`Attempting`), which is its desk to the outside

Nothing here is what makes it safe to run many: the ledger is. Two that have one call, a process that is killed or
frozen, a partition that moves: whoever holds the slot acts, and everybody else treats the call as in doubt.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from typing import Final

from tracklog.consumers.dispatch.attempt import Attempting, OpenCall, Report
from tracklog.consumers.dispatch.ends import Ends
from tracklog.consumers.dispatch.follow import Intended
from tracklog.consumers.dispatch.kept import Keeper
from tracklog.consumers.dispatch.ledger import Ledger
from tracklog.consumers.dispatch.partitions import Assigned, DispatchPartitions, News
from tracklog.consumers.dispatch.pauses import Pauses
from tracklog.consumers.dispatch.slots import EMPTY, Row
from tracklog.consumers.dispatch.turns import Turns
from tracklog.infra.blobs import BlobStore
from tracklog.infra.clock import Clock, Entropy
from tracklog.infra.lines import about
from tracklog.infra.log.port import Log
from tracklog.infra.log.ranges import read_range
from tracklog.infra.partition_loop import PartitionLoop
from tracklog.infra.partition_thread import owning
from tracklog.infra.settings import DispatchSettings, LoopSettings
from tracklog.producers.bodies import body_of, delivered_body, whole_text
from tracklog.producers.post import Poster
from tracklog.producers.settle import check_settles
from tracklog.producers.tools import ToolSet
from tracklog.schemas.codec import Framing, single_object
from tracklog.schemas.envelope import LedgerEnvelope
from tracklog.schemas.errors import LogUnavailable
from tracklog.schemas.inbox import Outcome
from tracklog.schemas.ledger import Done, LedgerBody
from tracklog.schemas.limits import BODY_INLINE_BYTES_MAX
from tracklog.schemas.redaction import Redaction
from tracklog.schemas.topics import Topics
from tracklog.schemas.values import Body, InboxId, ResultStatus

__all__ = ["Dispatcher"]

AGAIN_S: Final = 1.0
"""After which a call is taken up again whose log or blob store was away; it doubles each time, up to AGAIN_S_MAX."""
AGAIN_S_MAX: Final = 30.0
CUT_OFF_S: Final = 5.0
"""What calls that were cut off have to end."""
WAIT_STEP_S: Final = 5.0
"""Between two looks at the clock, which may be set meanwhile."""
SEEN_S_MAX: Final = 30.0
"""How long the events may take to be read to an end that was asked for."""
TEXT: Final = "text/plain"


@dataclass(slots=True)
class _Partition:
    """One that is owned: how far its events were read, and its open calls by the hash of their intent."""

    position: int
    moved: asyncio.Event = field(default_factory=asyncio.Event)
    calls: dict[bytes, OpenCall] = field(default_factory=dict)
    tasks: dict[bytes, asyncio.Task[None]] = field(default_factory=dict)
    cancelled: set[str] = field(default_factory=set)


class Dispatcher:
    """Made and run on one event loop. `told` is called with a line for people now and then. `keeper` has what is
    stored of its partitions; without one they are folded from their first kept offset. Raises InvalidTool for a tool
    that its grace cannot settle."""

    def __init__(
        self,
        log: Log,
        topics: Topics,
        tools: ToolSet,
        *,
        blobs: BlobStore,
        clock: Clock,
        entropy: Entropy,
        name: str,
        settings: DispatchSettings,
        loop_settings: LoopSettings,
        body_inline_bytes_max: int = BODY_INLINE_BYTES_MAX,
        framing: Framing = single_object,
        keeper: Keeper | None = None,
        told: Callable[[str], None] = lambda _: None,
        redaction: Redaction | None = None,
    ) -> None:
        for tool in tools:
            if tool.dispatched(dispatches=True):
                check_settles(tool, settings.grace_s, "dispatch.grace_s")
        self._log = log
        self._topics = topics
        self._tools = tools if redaction is None else tools.cleaned(redaction.text)
        self._blobs = blobs
        self.clock = clock
        self.name = name
        self.nonce: Final = entropy.nonce()
        """Of this start of the process; a frozen process and the one in its place may share a name."""
        self._settings = settings
        self._told = told
        if keeper is not None:
            keeper.told = told
        self._inline_bytes_max = body_inline_bytes_max
        self.turns: Final = Turns(clock)
        self.pauses: Final = Pauses(log, topics, clock, told)
        self._ends = Ends(log, topics.events)
        self._ledger = Ledger(log, topics.attempts, clock=clock, framing=framing)
        self._poster = Poster(log, topics, clock=clock, framing=framing, redaction=redaction)
        self._partitions: dict[int, _Partition] = {}
        self._where: dict[bytes, int] = {}
        self._loop = asyncio.get_running_loop()
        owner = DispatchPartitions(
            log,
            topics,
            assigned=lambda p, found: self._on_loop(self._assigned, p, found),
            news=lambda p, news: self._on_loop(self._heard, p, news),
            revoked=self._revoked,
            standing=self._ledger.standing,
            saved=self._ledger.saved,
            keeper=keeper,
        )
        quick = loop_settings.model_copy(update={"batch_wait_s": 0.0})
        self.partition_loop: Final = PartitionLoop(log, topics.events, owner, clock=clock, settings=quick)

    @property
    def open_calls(self) -> int:
        return sum(len(one.calls) for one in self._partitions.values())

    @property
    def ledger_slots(self) -> int:
        """Slots of the ledger that open calls have taken, as far as it was read."""
        return self._ledger.slots

    @property
    def tools_paused(self) -> int | None:
        """How many of its own tools are paused; None while nobody knows."""
        return sum(self.pauses.holds(name) for name in self._tools.names) if self.pauses.known else None

    @property
    def partitions(self) -> frozenset[int]:
        return frozenset(self._partitions)

    async def run(self, stop: asyncio.Event) -> None:
        """Works until `stop` is set, then lets calls under way end. Raises what ended the partition loop."""
        async with owning(self.partition_loop, self._topics.group(self._settings.group)) as ended:
            looking = asyncio.create_task(self.pauses.follow(self._look_again), name="tracklog-pauses")
            waits = [asyncio.create_task(stop.wait()), asyncio.create_task(ended.wait()), looking]
            try:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
                if looking.done():
                    looking.result()  # it ends by an error only
            finally:
                for one in waits:
                    one.cancel()
                for partition in list(self._partitions):
                    await self._give_up(partition, self._settings.move_wait_s)
        await self._ledger.close()

    # -- what the partition loop says

    def _on_loop(self, function: Callable[..., None], *arguments: object) -> None:
        with suppress(RuntimeError):  # the event loop is closed: nobody listens any more
            self._loop.call_soon_threadsafe(function, *arguments)

    def _assigned(self, partition: int, found: Assigned) -> None:
        """One that is owned already was read again, from what the store says: its calls go on, or are closed."""
        owned = self._partitions.setdefault(partition, _Partition(found.position))
        self._ledger.own(partition, found.rows, found.ledger_position, found.unsaved)
        closed = tuple(one for one in owned.calls if one not in found.rows)
        news = News(found.position, found.calls, closed, cancelled=tuple(found.cancelled))
        self._heard(partition, news, fresh=False)

    def _heard(self, partition: int, news: News, *, fresh: bool = True) -> None:
        owned = self._partitions.get(partition)
        if owned is None:
            return
        owned.cancelled.update(news.cancelled)
        for one in news.opened:
            if one.hash not in owned.calls:
                self._opened(partition, owned, one, fresh=fresh)
        for call_hash in news.closed:
            self._closed(partition, owned, call_hash)
        if news.cancelled:
            for call in owned.calls.values():
                if call.trajectory_id in news.cancelled:
                    call.cancelled = True
                    call.changed.set()
        owned.position = news.position
        moved, owned.moved = owned.moved, asyncio.Event()
        moved.set()

    def _opened(self, partition: int, owned: _Partition, one: Intended, *, fresh: bool) -> None:
        call = OpenCall(one.trajectory_id, one.tenant, one.epoch, one.seq, one.lane, one.intent, one.hash)
        call.cancelled, call.fresh = one.trajectory_id in owned.cancelled, fresh
        owned.calls[call.hash] = call
        self._where[call.hash] = partition
        owned.tasks[call.hash] = asyncio.create_task(
            self._cared(call, partition), name=f"tracklog-{one.intent.call_id}"
        )

    def _look_again(self) -> None:
        """Calls that wait look at what they know again."""
        for owned in self._partitions.values():
            for call in owned.calls.values():
                call.changed.set()

    def _closed(self, partition: int, owned: _Partition, call_hash: bytes) -> None:
        call = owned.calls.pop(call_hash, None)
        if call is not None:
            call.open = False
            call.changed.set()
        self._where.pop(call_hash, None)
        self._ledger.settled(partition, call_hash)

    def _revoked(self, partition: int) -> None:
        """On the partition loop's thread: returns when the partition is let go of, or its time is over."""
        wait_s = self._settings.revoke_wait_s
        future: Future[None] = asyncio.run_coroutine_threadsafe(self._give_up(partition, wait_s), self._loop)
        with suppress(FutureTimeout, CancelledError):  # the next owner treats what is not over as in doubt
            future.result(wait_s + CUT_OFF_S)

    async def _give_up(self, partition: int, wait_s: float) -> None:
        """No call is begun any more, those under way have their time, and the partition is forgotten.

        One whose slot is won is under way: left like that, nobody could know that it was not sent.
        """
        owned = self._partitions.pop(partition, None)
        if owned is None:
            return
        pending = {task for task in owned.tasks.values() if not task.done()}
        for call in owned.calls.values():
            call.left_at = owned.position
            call.changed.set()
        if pending:
            _, pending = await asyncio.wait(pending, timeout=wait_s)
        for task in pending:
            task.cancel()
        if pending:
            await asyncio.wait(pending, timeout=CUT_OFF_S)
        for call_hash in owned.calls:
            self._where.pop(call_hash, None)
        self._ledger.disown(partition)

    async def _cared(self, call: OpenCall, partition: int) -> None:
        with about(trajectory=call.trajectory_id, call=call.intent.call_id, partition=partition):
            await self._care(call)

    async def _care(self, call: OpenCall) -> None:
        """One call, as long as it is open here."""
        again_s = AGAIN_S
        while call.open and not call.left:
            attempting = Attempting(
                call,
                self._tools.get(call.intent.tool),
                self,
                grace_s=self._settings.grace_s,
                output_bytes_max=self._settings.output_bytes_max,
            )
            try:
                await attempting.settle()
                break
            except Exception as error:  # noqa: BLE001 - one call never ends the dispatcher; it is taken up again
                said = f"{type(error).__name__}: {error}"
                self._told(f"{call.trajectory_id}, call {call.intent.call_id}: {said}; again in {again_s:g} s")
                await self.wait(call, again_s)
                again_s = min(AGAIN_S_MAX, again_s * 2)
        owned = self._partitions.get(self._where.get(call.hash, -1))
        if owned is not None:
            owned.tasks.pop(call.hash, None)

    # -- the desk of a call

    async def row(self, call: OpenCall) -> Row:
        if call.fresh:
            call.fresh = False
            return self._ledger.known(self._at(call), call.hash)
        return await self._ledger.row(self._at(call), call.hash)

    async def enter(self, call: OpenCall, slot: int, body: LedgerBody) -> Row:
        envelope = LedgerEnvelope(
            trajectory_id=call.trajectory_id,
            tenant=call.tenant,
            call_id=call.intent.call_id,
            intent_hash=call.hash,
            slot=slot,
            nonce=self.nonce,
            recorded_at=self.clock.now_us(),
        )
        if isinstance(body, Done):
            await self._ledger.close_row(envelope, body)
            return EMPTY
        return await self._ledger.enter(self._at(call), envelope, body)

    def holds(self, row: Row, slot: int) -> bool:
        return row.holder(slot) == self.nonce

    async def is_open(self, call: OpenCall) -> bool:
        partition = self._at(call)
        end = await self._ends.of(partition)
        deadline_s = self.clock.monotonic_s() + SEEN_S_MAX
        while call.open:
            if call.left_at is not None:
                return await asyncio.to_thread(self._is_quiet, call, partition, call.left_at, end)
            owned = self._partitions.get(partition)
            if owned is None or owned.position >= end:
                break
            left_s = deadline_s - self.clock.monotonic_s()
            if left_s <= 0:
                raise LogUnavailable(f"events of partition {partition} were not read to their end in {SEEN_S_MAX:g} s")
            with suppress(TimeoutError):
                await asyncio.wait_for(owned.moved.wait(), left_s)
        return call.open

    def _is_quiet(self, call: OpenCall, partition: int, start: int, end: int) -> bool:
        """Whether nothing was said of the call's trajectory there."""
        key = call.trajectory_id.encode()
        records = read_range(self._log, self._topics.events, partition, start, end)
        return all(record.key != key for record in records)

    def paused(self, call: OpenCall) -> bool:
        return self.pauses.holds(call.intent.tool)

    def turn(self, call: OpenCall) -> AbstractAsyncContextManager[None]:
        tool = self._tools.get(call.intent.tool)
        return nullcontext() if tool is None else self.turns.turn(tool, call.trajectory_id)

    async def arguments(self, call: OpenCall) -> str:
        body = call.intent.arguments
        return body.text if body.whole else await asyncio.to_thread(whole_text, body, self._blobs)

    async def report(self, call: OpenCall, report: Report) -> None:
        """Of one lane of a trajectory, what is known of a call comes after that nobody knows it."""
        ran = report.ran
        known = ran.status is not ResultStatus.UNKNOWN
        outcome = Outcome(
            call_id=call.intent.call_id,
            intent_hash=call.hash,
            slot=report.slot,
            status=ran.status,
            output=await self._body(ran.output, ran.whole),
            settled=report.settled,
            duration_ms=ran.duration_ms,
        )
        inbox_id = InboxId(source=f"dispatch/{call.lane}", seq=2 * call.seq + known)
        await self._poster.post(call.trajectory_id, outcome, inbox_id=inbox_id, tenant=call.tenant)

    async def wait(self, call: OpenCall, seconds: float) -> None:
        deadline_s = self.clock.monotonic_s() + seconds
        call.changed.clear()
        while call.open and not call.left and (left_s := deadline_s - self.clock.monotonic_s()) > 0:
            with suppress(TimeoutError):
                await asyncio.wait_for(call.changed.wait(), min(left_s, WAIT_STEP_S))
                return

    async def _body(self, output: str, whole: str | None) -> Body:
        if whole is None:
            return await asyncio.to_thread(body_of, output, self._blobs, self._inline_bytes_max, TEXT)
        return await asyncio.to_thread(delivered_body, output, whole, self._blobs, TEXT)

    def _at(self, call: OpenCall) -> int:
        partition = self._where.get(call.hash)
        if partition is None:
            raise LogUnavailable(f"call {call.intent.call_id!r} is not this dispatcher's any more")
        return partition
