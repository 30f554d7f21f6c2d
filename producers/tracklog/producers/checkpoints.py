"""Checkpoints of a session that runs: when one is due, what it holds, and what must not run beside it (DESIGN §7).

    when                                        why
    a turn is finished, and the cadence says    so that little is done again after a crash
    before an opaque call                       what cannot be undone starts from files that are safe
    after a call of another class than          it is not performed again, so what it wrote would be lost
      readonly and local
    after a local call that ended unknown       what it left cannot be made again
    before a hold, and when the session is left the next owner may be elsewhere

Local calls run one at a time, in the order of their intents, and none beside a snapshot: so a snapshot has the whole
of what such a call did, or nothing of it. Nothing is written when nothing has changed since the last checkpoint.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import orjson

from tracklog.infra.blobs import BlobStore
from tracklog.infra.clock import Clock
from tracklog.producers.cadence import Cadence
from tracklog.producers.journal import Journal, MemoryJournal
from tracklog.producers.pen import WriterPen
from tracklog.producers.record import Record
from tracklog.producers.repeats import Repeated
from tracklog.producers.snapshot import Mark, Recall, store_snapshot
from tracklog.producers.spend import Spend
from tracklog.producers.workspace import Snapshot, Workspace
from tracklog.schemas.errors import InvalidEvent
from tracklog.schemas.events import CheckpointTaken
from tracklog.schemas.state import State
from tracklog.schemas.values import BlobRef, Effect, SnapshotKind

__all__ = ["EXT_PAUSE", "Checkpoints"]

EXT_PAUSE: Final = "pause_us"
"""In `ext` of a CheckpointTaken: how long it held up the work, in microseconds."""


class Checkpoints:
    """Of one session that goes live. `remembers`: its program is a turn function with a memory."""

    def __init__(
        self,
        record: Record,
        pen: WriterPen,
        blobs: BlobStore,
        clock: Clock,
        cadence: Cadence,
        *,
        workspace: Workspace | None,
        remembers: bool,
        recall: Recall | None,
        place: int | None,
        turn: int,
    ) -> None:
        """`place`: the event that the next delta of the workspace builds on; `turn`: that of the last checkpoint."""
        self.cadence: Final = cadence
        self.remembers: Final = remembers
        self.workspace: Final = workspace
        self._record = record
        self._pen = pen
        self._blobs = blobs
        self._clock = clock
        self.journal: Final = recall.journal if recall is not None else Journal()
        self._remembered = recall.remembered if recall is not None else MemoryJournal()
        self._mark: Mark | None = None
        self._kept: Mark | None = None
        self._place = place
        self._turn = turn
        self._since_s = clock.monotonic_s()
        self._working = asyncio.Lock()
        self._half_done = False

    async def start(self) -> BlobRef | None:
        """The files with which the trajectory begins."""
        if self.workspace is None:
            return None
        return (await asyncio.to_thread(self.workspace.snapshot)).ref

    def started(self, seq: int) -> None:
        """The files of the beginning are named by this event."""
        self._place = seq

    def finished(self, memory: Any, replies: int, spent: Spend, repeated: Repeated) -> None:
        """A turn of the program is over; this is what it left. Raises InvalidEvent for what is not JSON."""
        try:
            text = orjson.dumps(memory)
        except TypeError as error:
            raise InvalidEvent(
                f"the memory of a turn is not JSON: {error}", hint="dicts, lists, strings, numbers"
            ) from error
        expected = self._record.cursor.next_open()
        until = expected.seq - 1 if expected is not None else self._pen.last
        seen, rows = self._record.strand.last, self.journal.end
        self._mark = Mark(until, self._record.turn, replies, seen, rows, text, spent, repeated)

    async def when_due(self) -> None:
        """Takes a checkpoint when it is time."""
        if not self._record.cursor.done:
            return
        elapsed_s, turns = self._clock.monotonic_s() - self._since_s, self._record.turn - self._turn
        if self.cadence.due(elapsed_s=elapsed_s, turns=turns):
            await self.take()

    async def take(self) -> bool:
        """Takes a checkpoint; False when there is nothing new to keep, or a local call was left half done."""
        async with self._working:
            return await self._take()

    @asynccontextmanager
    async def around(self, effect: Effect) -> AsyncIterator[None]:
        """Around a call, from before its intent to after its result."""
        if self.workspace is None or effect is Effect.READONLY:
            yield
            return
        if effect is Effect.LOCAL:
            async with self._working:
                self._half_done, before = True, self._half_done
                yield
                self._half_done = before
            return
        if effect is Effect.OPAQUE:
            await self.take()
        yield
        await self.take()

    async def _take(self) -> bool:
        if self._half_done:
            return False
        began_s = self._clock.monotonic_s()
        files = None if self.workspace is None else await asyncio.to_thread(self.workspace.snapshot)
        mark = self._mark
        newer = mark is not None and (self._kept is None or mark.until > self._kept.until)
        if not newer and (files is None or not files.changed):
            return False
        state = await self._pen.stand()
        ref = await asyncio.to_thread(store_snapshot, self._blobs, state, self.journal, mark, self._remembered)
        pause_s = self._clock.monotonic_s() - began_s
        ext = {EXT_PAUSE: str(round(pause_s * 1_000_000))}
        seq = await self._pen.append(
            self._body(state, ref, files), turn=self._record.turn, cause=self._record.strand.last, ext=ext
        )
        await self._pen.confirm(seq)
        self._kept = mark
        self._place = seq if files is not None else self._place
        self.cadence.took(pause_s)
        if newer or not self.remembers:
            self._since_s, self._turn = self._clock.monotonic_s(), self._record.turn
        return True

    def _body(self, state: State, ref: BlobRef, files: Snapshot | None) -> CheckpointTaken:
        delta = files is not None and files.kind is SnapshotKind.DELTA and self._place is not None
        return CheckpointTaken(
            seq_covered=state.head.seq,
            epoch_covered=state.head.epoch,
            head_hash=state.head.hash,
            state=ref,
            workspace=None if files is None else files.ref,
            kind=SnapshotKind.DELTA if delta else SnapshotKind.FULL,
            base_seq=self._place if delta else None,
        )
