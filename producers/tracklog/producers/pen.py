"""Where a session writes what it does live: the log, or nowhere.

Calls of one turn run side by side, a writer serves one task at a time. `WriterPen` lets them take turns and
answers read-backs together: what was appended while one waited is confirmed with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final, Protocol

from tracklog.producers.leash import Leash
from tracklog.producers.mailbox import Incoming
from tracklog.producers.places import Places
from tracklog.producers.writer import TrajectoryWriter
from tracklog.schemas.errors import TrajectoryEnded
from tracklog.schemas.events import EventBody
from tracklog.schemas.lifecycle import Parked
from tracklog.schemas.state import State

__all__ = ["EndedPen", "Pen", "WriterPen"]


class Pen(Protocol):
    """What a session needs to go on live."""

    epoch: int

    def check_live(self, asked: str) -> None:
        """Raises when nothing may happen that is not recorded."""

    async def append(
        self, body: EventBody, *, turn: int, cause: int | None, ext: Mapping[str, str] | None = None
    ) -> int:
        """The seq of the event, which is under way. `cause` is the place of the event it follows from."""

    async def confirm(self, seq: int) -> None:
        """Returns when the event was read back as accepted. Raises Fenced, Undecided."""


class WriterPen:
    """Writes to the log. Raises what the writer raises."""

    def __init__(self, writer: TrajectoryWriter, leash: Leash | None = None) -> None:
        self.writer: Final = writer
        self._leash = leash
        self.epoch = writer.epoch
        self.places = Places(writer.trajectory_id)
        self._turns = asyncio.Lock()
        self._confirmed = -1

    def check_live(self, asked: str) -> None:
        """Raises what the leash was pulled with."""
        if self._leash is not None:
            self._leash.check()

    async def append(
        self, body: EventBody, *, turn: int, cause: int | None, ext: Mapping[str, str] | None = None
    ) -> int:
        causes = () if cause is None else (self.places.ref(cause),)
        seen = 0 if cause is None else self.places.lamport(cause)
        ext = ext if ext is not None else {}
        async with self._turns:
            return (await self.writer.append(body, turn=turn, causes=causes, lamport_seen=seen, ext=ext)).seq

    async def confirm(self, seq: int) -> None:
        async with self._turns:
            if seq > self._confirmed:
                last = self.writer.next_seq - 1
                await self.writer.confirm()
                self._confirmed = last

    @property
    def last(self) -> int:
        """Seq of the last event that was appended."""
        return self.writer.next_seq - 1

    async def stand(self) -> State:
        """The accepted state, everything appended so far included. Raises Fenced, Undecided."""
        async with self._turns:
            last = self.last
            state = await self.writer.confirm()
            self._confirmed = last
        return state

    async def standing(self) -> State:
        """The state after everything appended so far, read back."""
        async with self._turns:
            if self.writer.state.head.seq < self.writer.next_seq - 1:
                await self.writer.confirm()
            return self.writer.state

    async def take(
        self, body: EventBody, one: Incoming, *, turn: int, cause: int | None, ext: Mapping[str, str] | None = None
    ) -> int:
        """Appends the event that takes an inbox record."""
        causes = one.causes if cause is None else (self.places.ref(cause), *one.causes)
        async with self._turns:
            appended = await self.writer.append(
                body,
                turn=turn,
                causes=causes,
                lamport_seen=one.lamport,
                inbox_id=one.inbox_id,
                inbox_position=one.position,
                ext=ext if ext is not None else {},
            )
        return appended.seq

    async def release(self, reason: str = "", *, parked: Parked | None = None, waits_for: str = "") -> None:
        """Gives the trajectory back. Raises Fenced when something that was appended is not part of it."""
        async with self._turns:
            await self.writer.confirm()  # a barrier alone does not tell an owner that it was overtaken
            await self.writer.release(reason, parked=parked, waits_for=waits_for)
            if self._leash is not None:
                self._leash.let_go(self.writer.state, parked if parked is not None else Parked.LEFT)


class EndedPen:
    """For a trajectory that has ended: its record answers, and nothing may follow it."""

    epoch = 0

    def __init__(self, trajectory_id: str) -> None:
        self._trajectory_id = trajectory_id

    async def append(
        self, body: EventBody, *, turn: int, cause: int | None, ext: Mapping[str, str] | None = None
    ) -> int:
        raise self._ended(type(body).__name__)

    async def confirm(self, seq: int) -> None:
        """Everything in the record is accepted."""

    def check_live(self, asked: str) -> None:
        raise self._ended(asked)

    def _ended(self, what: str) -> TrajectoryEnded:
        return TrajectoryEnded(
            f"trajectory {self._trajectory_id!r} has ended; {what} cannot follow",
            hint="give new work a trajectory of its own",
        )
