"""The record of one trajectory as a session has it: the cursor over what is there, the pen for what follows."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Protocol, TypeVar

from tracklog.infra.blobs import BlobStore
from tracklog.producers.again import Asking
from tracklog.producers.bodies import body_of, delivered_body, whole_text
from tracklog.producers.cursor import Cursor, Recorded
from tracklog.producers.pen import Pen
from tracklog.producers.rule import SESSION_RULE, Rule
from tracklog.producers.strand import Strand
from tracklog.producers.taking import Received, Taking
from tracklog.schemas import events as ev
from tracklog.schemas.errors import Cancelled, NothingReceived
from tracklog.schemas.redacting import redacted_text
from tracklog.schemas.redaction import Redaction
from tracklog.schemas.values import BlobRef, Body, Ending, ObservedKind

__all__ = ["JSON", "TEXT", "Record", "Stage"]

TEXT: Final = "text/plain"
JSON: Final = "application/json"
INLINE_WORK_CHARS_MAX: Final = 16 * 1024
"""Texts above this are hashed and stored beside the event loop."""

B = TypeVar("B", bound=ev.EventBody)
Check = Callable[[B, B], str]
"""(recorded, asked for) -> what is not as it was, "" for nothing."""


class Stage(Protocol):
    """Of a replay beside others: has each event given out at its turn."""

    async def turn(self, place: int) -> None:
        """Returns when everything before this event was given out, wherever it was recorded."""

    def given(self, place: int) -> None:
        """This event was given out."""


class Record:
    """Answers from the cursor while there is an answer; what is written goes to the pen."""

    def __init__(
        self,
        trajectory_id: str,
        cursor: Cursor,
        pen: Pen,
        blobs: BlobStore,
        *,
        body_inline_bytes_max: int,
        rule: Rule = SESSION_RULE,
        asking: Asking | None = None,
        stage: Stage | None = None,
        redaction: Redaction | None = None,
    ) -> None:
        self.trajectory_id: Final = trajectory_id
        self.cursor: Final = cursor
        self.pen: Final = pen
        self.rule: Final = rule
        self.asking: Final = asking
        self._stage = stage
        self.strand: Final = Strand()
        self.turn = 0
        self.taking: Taking | None = None
        """What comes into the inbox, of a session that may go live."""
        self.due: Callable[[], Awaitable[None]] | None = None
        """Writes what must stand before the next event that is written."""
        self.redaction: Final = redaction
        self._blobs = blobs
        self._limit = body_inline_bytes_max

    async def next_ordered(self, kind: type[B], asked: str) -> Recorded[B] | None:
        """The next recorded event, None past the end."""
        await self._turn(self.cursor.next_open())
        return self._saw(self.cursor.ordered(kind, asked, self.strand.last))

    async def ordered(self, body: B, asked: str, *, check: Check[B], ext: Mapping[str, str] | None = None) -> int:
        """The seq of this event: recorded as it was, or written now. Raises Diverged when `check` finds something."""
        expected = self.cursor.next_open()
        found = await self.next_ordered(type(body), asked)
        if found is None:
            self.check_live(asked)
            return await self.write(body, ext=ext)
        changed = check(found.body, body)
        if changed and expected is not None:
            raise self.cursor.diverged(expected, f"{asked} (another {changed})")
        return found.seq

    async def of_call(self, kind: type[B], call_id: str, asked: str, times: int = 0) -> Recorded[B] | None:
        """What is recorded of a call. `times`: how often the same was given out of it before."""
        await self._turn(self.cursor.next_of_call(kind, call_id, times))
        return self._saw(self.cursor.of_call(kind, call_id, asked, self.strand.last, times))

    async def observed(
        self, kind: ObservedKind, name: str, occurrence: int, asked: str
    ) -> Recorded[ev.Observed] | None:
        """What a step or a reading gave."""
        await self._turn(self.cursor.next_observed(kind, name, occurrence))
        return self._saw(self.cursor.observed(kind, name, occurrence, asked, self.strand.last))

    async def received(self, asked: str, wait_s: float, peer: str | None = None) -> Recorded[ev.MessageReceived]:
        """The next message that came into the inbox (from this peer); waits for it. Raises NothingReceived."""
        await self._turn(self.cursor.next_heard(peer))
        found = self.cursor.received(asked, self.strand.last, peer)
        if found is None:
            self.check_live(asked)
            found = await self._next_message(wait_s, peer)
        if self.strand.last is None or found.seq > self.strand.last:
            self.strand.saw(found.seq)
        return found

    async def _next_message(self, wait_s: float, peer: str | None) -> Recorded[ev.MessageReceived]:
        taking = self.taking
        if taking is not None:

            def first() -> Received | None:
                return next((one for one in taking.messages if peer is None or one.body.peer == peer), None)

            def ready() -> bool:
                self.check_live("a message")  # a cancel may be what comes
                return first() is not None

            await taking.look()
            await taking.until(ready, wait_s)
            found = first()
            if found is not None:
                taking.messages.remove(found)
                return Recorded(found.seq, self.turn, None, found.body)
        whom = "" if peer is None else f" from {peer!r}"
        error = NothingReceived(
            f"trajectory {self.trajectory_id!r} waits for a message{whom}, and none has come within {wait_s:g} s",
            hint=f"send it one and open its session again: tracklog send {self.trajectory_id} TEXT",
        )
        error.waits_for = peer if peer is not None else ""
        raise error

    async def take(self) -> None:
        """Takes what has come into the inbox, once everything recorded was given out."""
        if self.taking is not None and self.cursor.done:
            await self.taking.look()

    def check_live(self, asked: str) -> None:
        """Before something is done that is not recorded. Raises what the pen raises when nothing may be."""
        self.cursor.check_sound()
        if self.taking is not None and self.taking.cancelled is not None:
            raise Cancelled(f"trajectory {self.trajectory_id!r} was cancelled: {self.taking.cancelled}")
        self.pen.check_live(asked)

    async def write(self, body: ev.EventBody, *, ext: Mapping[str, str] | None = None) -> int:
        """Appends an event that follows from what this task saw last; it is under way when this returns."""
        await self.write_due()
        seq = await self.pen.append(body, turn=self.turn, cause=self.strand.last, ext=ext)
        self.strand.saw(seq)
        return seq

    async def write_due(self) -> None:
        """Writes what is due, once."""
        due, self.due = self.due, None
        if due is not None:
            await due()

    async def body(self, text: str, media_type: str, *, message: bool = False) -> Body:
        """The body for a text without its secrets, stored when it is long. What has no UTF-8 form is replaced.
        `message`: a JSON that has a message's form."""
        clean = text.encode("utf-8", "replace").decode() if not text.isascii() else text
        if self.redaction is not None:
            clean = redacted_text(clean, media_type, self.redaction, message=message)
        if len(clean) <= INLINE_WORK_CHARS_MAX:
            return body_of(clean, self._blobs, self._limit, media_type)
        return await asyncio.to_thread(body_of, clean, self._blobs, self._limit, media_type)

    async def delivered(self, text: str, whole: str, media_type: str) -> Body:
        """The body for a text that was given on cut; all of it is stored."""
        return await asyncio.to_thread(delivered_body, text, whole, self._blobs, media_type)

    async def whole(self, body: Body) -> str:
        """All of a body's text."""
        return body.text if body.whole else await asyncio.to_thread(whole_text, body, self._blobs)

    async def blob(self, text: str, media_type: str) -> BlobRef:
        """A text that is always in the blob store: prompts, tool schemas."""
        if not self.cursor.next_open():
            await self.put(text, media_type)
        data = text.encode()
        return BlobRef(hash=hashlib.sha256(data).digest(), size_bytes=len(data), media_type=media_type)

    async def put(self, text: str, media_type: str) -> None:
        """Stores a text durably."""
        await asyncio.to_thread(self._blobs.put, text.encode(), media_type=media_type)

    async def stored(self, digest: bytes) -> str:
        """A text from the blob store. Raises BlobMissing, BlobAltered, BlobError."""
        return (await asyncio.to_thread(self._blobs.get, digest.hex())).decode()

    async def child_ended(self, child_id: str) -> tuple[Recorded[ev.MessageReceived], Ending] | None:
        """What is recorded of the end of a child run."""
        self.cursor.check_sound()
        found = self.cursor.children.get(child_id)
        if found is not None:
            await self._turn(found[0])
        return self.cursor.children.pop(child_id, None)

    async def woken(self, name: str) -> bool:
        """Whether it is recorded that a timer by the clock went off, and it was not waited for yet."""
        places = self.cursor.woken.get(name)
        if not places:
            return False
        await self._turn(places[0])
        places.popleft()
        return True

    async def _turn(self, found: Recorded[Any] | None) -> None:
        if self._stage is not None and found is not None:
            await self._stage.turn(found.seq)

    def _saw(self, found: Recorded[B] | None) -> Recorded[B] | None:
        if found is not None:
            self.strand.saw(found.seq)
            if self._stage is not None:
                self._stage.given(found.seq)
        return found
