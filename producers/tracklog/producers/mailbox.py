"""What others have said to a trajectory and its owner has not taken yet (DESIGN §4, §8 rule 3).

A worker hands over what its partition loop read; a library session reads the inbox itself; a replay has none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from tracklog.infra.clock import Clock
from tracklog.infra.log.partitioner import partition_of
from tracklog.infra.log.port import Bounds, Log, Reader, Record
from tracklog.infra.log.ranges import read_range
from tracklog.infra.log.trimmed import pass_trimmed
from tracklog.schemas.codec import InboxRecord, decode_inbox
from tracklog.schemas.errors import ForeignRecord, OffsetTrimmed
from tracklog.schemas.inbox import InboxBody
from tracklog.schemas.values import InboxId, Ref

__all__ = ["Incoming", "LogMailbox", "Mailbox", "NoMail", "incoming", "known_incoming"]

POLL_RECORDS_MAX: Final = 500
POLL_S: Final = 0.25
"""Between two looks at the bound of a wait."""


_NOTHING: Final[Mapping[str, str]] = {}


class Incoming(NamedTuple):
    """One inbox record. `position` is its offset, `body` None for a type or version that is not known here.

    `causes` are the events of other trajectories that it follows from, `lamport` the largest Lamport time among them,
    `tenant` that of whoever said it.
    """

    inbox_id: InboxId
    position: int
    name: str
    body: InboxBody | None
    hash: bytes
    causes: tuple[Ref, ...] = ()
    lamport: int = 0
    ext: Mapping[str, str] = _NOTHING
    tenant: str = ""


class Mailbox(Protocol):
    """Of one trajectory. Its methods are called from the session's event loop."""

    def waiting(self) -> Sequence[Incoming]:
        """What is known to have come, in the order of the inbox; also what was taken, if it was not said so."""

    def took(self, one: Incoming) -> None:
        """An event has taken it, or it was taken before: it is not offered again."""

    async def look(self) -> None:
        """Reads to the present end of the inbox, where that is this mailbox's own work. Raises LogUnavailable."""

    async def wait(self, timeout_s: float) -> bool:
        """Until something new has come, at most so long; False when nothing did."""


class NoMail:
    """Nobody can reach the trajectory."""

    def waiting(self) -> Sequence[Incoming]:
        return ()

    def took(self, one: Incoming) -> None:
        """There is nothing to forget."""

    async def look(self) -> None:
        """There is nothing to read."""

    async def wait(self, timeout_s: float) -> bool:
        return False


class LogMailbox:
    """Reads the inbox partition of one trajectory from its first kept offset; what was taken, its events tell."""

    def __init__(self, log: Log, topic: str, trajectory_id: str, *, clock: Clock) -> None:
        self._log = log
        self._topic = topic
        self._key = trajectory_id.encode()
        self._clock = clock
        self._partition = -1
        self._next = 0
        self._waiting: list[Incoming] = []

    def waiting(self) -> Sequence[Incoming]:
        return tuple(self._waiting)

    def took(self, one: Incoming) -> None:
        self._waiting.remove(one)

    async def look(self) -> None:
        self._waiting += await asyncio.to_thread(self._read)

    async def wait(self, timeout_s: float) -> bool:
        deadline_s = self._clock.monotonic_s() + timeout_s
        while True:
            left_s = deadline_s - self._clock.monotonic_s()
            new = await asyncio.to_thread(self._poll, max(0.0, min(left_s, POLL_S)))
            self._waiting += new
            if new or left_s <= 0:
                return bool(new)

    def _read(self) -> list[Incoming]:
        bounds = self._bounds()
        records = read_range(self._log, self._topic, self._partition, self._next, bounds.end, bounds=bounds)
        found = [one for record in records if (one := self._mine(record)) is not None]
        self._next = max(self._next, bounds.end)
        return found

    def _poll(self, timeout_s: float) -> list[Incoming]:
        if self._partition < 0:
            self._bounds()
        reader = self._log.reader(self._topic, {self._partition: self._next})
        try:
            records = self._polled(reader, timeout_s)
            self._next = max(self._next, reader.position(self._partition))
        finally:
            reader.close()
        return [one for record in records if (one := self._mine(record)) is not None]

    def _polled(self, reader: Reader, timeout_s: float) -> list[Record]:
        try:
            return reader.poll(POLL_RECORDS_MAX, timeout_s)
        except OffsetTrimmed:  # only what was taken is trimmed
            if not pass_trimmed(self._log, self._topic, reader, [self._partition]):
                raise
            return []

    def _bounds(self) -> Bounds:
        """Of the own partition, which the first question finds."""
        first = self._partition < 0
        if first:
            self._partition = partition_of(self._key, self._log.partition_count(self._topic))
        bounds = self._log.bounds(self._topic, self._partition)
        if first:
            self._next = bounds.first
        return bounds

    def _mine(self, record: Record) -> Incoming | None:
        return incoming(record) if record.key == self._key else None


def incoming(record: Record) -> Incoming | None:
    """An inbox record as it was read; None for what is none, which its partition's owner quarantines."""
    try:
        read = decode_inbox(record.key, record.value, record.headers)
    except ForeignRecord:
        return None
    return known_incoming(read, record.offset)


def known_incoming(read: InboxRecord, offset: int) -> Incoming:
    """One that was decoded before, and where it lies."""
    envelope = read.envelope
    return Incoming(
        envelope.inbox_id,
        offset,
        read.name,
        read.body,
        read.hash,
        envelope.causes,
        envelope.lamport,
        envelope.ext,
        envelope.tenant,
    )
