"""The attempt ledger of the partitions that a dispatcher owns: appending to it, and reading it back.

One reader follows all of them. Whoever asks for a row gets one that was read to an end requested after the question;
those who ask while it is being read are answered together by the next reading.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Collection, Mapping
from typing import Final

from tracklog.consumers.dispatch.kept import Standing
from tracklog.consumers.dispatch.slots import EMPTY, Row, entered
from tracklog.infra.clock import Clock
from tracklog.infra.log.port import Log, Reader, Record
from tracklog.infra.log.trimmed import pass_trimmed
from tracklog.producers.post import append_once, append_surely
from tracklog.schemas.codec import Framing, decode_ledger, encode_record, single_object
from tracklog.schemas.envelope import LedgerEnvelope
from tracklog.schemas.errors import (
    AppendRefused,
    AppendUnknown,
    ForeignRecord,
    LogQueueFull,
    LogUnavailable,
    OffsetTrimmed,
)
from tracklog.schemas.ledger import Done, LedgerBody, Pending

__all__ = ["Ledger"]

ENTER_S_MAX: Final = 30.0
"""How long an entry is tried to be made before nobody knows whether it is there."""
READ_S_MAX: Final = 30.0
AGAIN_S: Final = 0.1
POLL_RECORDS_MAX: Final = 1000
POLL_S: Final = 0.25
STRAGGLERS_MAX: Final = 10_000
"""Settled calls that are remembered, so that entries which come late for them keep no row."""


class Ledger:
    """Its methods are called from one event loop, `standing` and `saved` from any thread.

    `foreign_records`: entries that are none.
    """

    def __init__(self, log: Log, topic: str, *, clock: Clock, framing: Framing = single_object) -> None:
        self._log = log
        self._topic = topic
        self._clock = clock
        self._framing = framing
        self._rows: dict[int, dict[bytes, Row]] = {}
        self._positions: dict[int, int] = {}
        self._unsaved: dict[int, set[bytes]] = {}
        self._lock = threading.Lock()
        """Held while rows and position are changed together."""
        self._settled: dict[bytes, None] = {}
        self._reader: Reader | None = None
        self._changed = False
        self._reading = asyncio.Lock()
        self._tickets = itertools.count()
        self._asked: dict[int, tuple[int, int | None]] = {}
        """Those who wait for a reading: the partition, and the offset up to which it has to go, None for its end."""
        self.foreign_records = 0

    @property
    def slots(self) -> int:
        """Slots that are taken, of the calls that are followed."""
        with self._lock:
            return sum(len(row.slots) for rows in self._rows.values() for row in rows.values())

    def own(
        self, partition: int, rows: Mapping[bytes, Row], position: int, unsaved: Collection[bytes] = frozenset()
    ) -> None:
        """A partition is followed from here on; `rows` is what is known up to there. `unsaved`: see `standing`."""
        with self._lock:
            self._rows[partition] = dict(rows)
            self._positions[partition] = position
            self._unsaved[partition] = set(unsaved)
        self._changed = True

    def disown(self, partition: int) -> None:
        with self._lock:
            for kept in (self._rows, self._positions, self._unsaved):
                kept.pop(partition, None)
        self._changed = True

    def standing(self, partition: int, wanted: Collection[bytes]) -> Standing | None:
        """The rows wanted, and all that changed since they were last `saved`; None when it is not followed."""
        with self._lock:
            rows = self._rows.get(partition)
            if rows is None:
                return None
            asked = self._unsaved[partition].union(wanted)
            return Standing(self._positions[partition], {one: rows.get(one, EMPTY) for one in asked})

    def saved(self, partition: int, standing: Standing) -> None:
        with self._lock:
            rows, unsaved = self._rows.get(partition, {}), self._unsaved.get(partition, set())
            unsaved.difference_update([one for one, row in standing.rows.items() if rows.get(one, EMPTY) is row])

    def settled(self, partition: int, intent_hash: bytes) -> None:
        """The call has its result: its row is let go."""
        with self._lock:
            self._rows.get(partition, {}).pop(intent_hash, None)
            self._unsaved.get(partition, set()).discard(intent_hash)
        self._settled[intent_hash] = None
        if len(self._settled) > STRAGGLERS_MAX:
            del self._settled[next(iter(self._settled))]

    async def row(self, partition: int, intent_hash: bytes, upto: int | None = None) -> Row:
        """Read to the present end, or with all entries before the offset `upto`. Raises LogUnavailable, also for a
        partition that is not owned any more.

        Of a call that has its result nothing is kept but that it is done.
        """
        await self._refresh(partition, upto)
        return self.known(partition, intent_hash)

    def known(self, partition: int, intent_hash: bytes) -> Row:
        """As it was when the partition was last read."""
        if intent_hash in self._settled:
            return _OVER
        return self._rows.get(partition, {}).get(intent_hash, EMPTY)

    async def enter(self, partition: int, envelope: LedgerEnvelope, body: LedgerBody) -> Row:
        """Makes an entry and returns the row as the log has it then; who holds the slot is for the caller to see.

        What an entry came to is decided by those before it in the log: where it lies is known, it is read up to there.

        Raises AppendUnknown when the log has not said within ENTER_S_MAX; what it refuses; LogUnavailable.
        """
        encoded = encode_record(envelope, body, self._framing)
        deadline_s = self._clock.monotonic_s() + ENTER_S_MAX
        upto: int | None = None
        while True:
            try:
                if upto is None:
                    appended = await append_once(self._log, self._topic, envelope.trajectory_id.encode(), encoded)
                    upto = appended.offset + 1
                row = await self.row(partition, envelope.intent_hash, upto)
            except (AppendRefused, LogQueueFull, LogUnavailable):
                if self._clock.monotonic_s() > deadline_s or partition not in self._positions:
                    raise
                await asyncio.sleep(AGAIN_S)
                continue
            except AppendUnknown:
                if self._clock.monotonic_s() > deadline_s:
                    raise
                row = await self.row(partition, envelope.intent_hash)
            if _decided(row, envelope.slot, body):
                return row
            if self._clock.monotonic_s() > deadline_s:
                raise LogUnavailable(
                    f"the ledger has not said within {ENTER_S_MAX:g} s who holds slot {envelope.slot} of call "
                    f"{envelope.call_id!r} in trajectory {envelope.trajectory_id!r}"
                )
            upto = None
            await asyncio.sleep(AGAIN_S)

    async def close_row(self, envelope: LedgerEnvelope, done: Done) -> None:
        """Nothing is read back: the call may have its result by now, and be followed by nobody. Raises as `enter`."""
        encoded = encode_record(envelope, done, self._framing)
        await append_surely(self._log, self._topic, envelope.trajectory_id.encode(), encoded, clock=self._clock)

    async def close(self) -> None:
        async with self._reading:
            await self._close_reader()

    async def _close_reader(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            await asyncio.to_thread(reader.close)

    async def _refresh(self, partition: int, upto: int | None) -> None:
        if upto is not None and self._positions.get(partition, -1) >= upto:
            return
        ticket = next(self._tickets)
        self._asked[ticket] = partition, upto
        try:
            async with self._reading:
                while ticket in self._asked:
                    if partition not in self._positions:
                        raise LogUnavailable(
                            f"partition {partition} of {self._topic} is not this dispatcher's any more"
                        )
                    await self._read_for_all()
        finally:
            self._asked.pop(ticket, None)

    async def _read_for_all(self) -> None:
        """Answers all who ask now, unless what is owned changes meanwhile: then it is read again from its beginning."""
        answers = {ticket: asked for ticket, asked in self._asked.items() if asked[0] in self._positions}
        reader = await self._open()
        records = await asyncio.to_thread(self._read, reader, list(answers.values()))
        if self._changed:
            return
        with self._lock:
            for record in records:
                self._keep(record)
            for one in self._positions:
                self._positions[one] = reader.position(one)
        for ticket in answers:
            self._asked.pop(ticket, None)

    async def _open(self) -> Reader:
        """The reader over the partitions that are owned now."""
        if self._changed or self._reader is None:
            self._changed = False
            await self._close_reader()
            self._reader = await asyncio.to_thread(self._log.reader, self._topic, dict(self._positions), follows=True)
        return self._reader

    def _read(self, reader: Reader, asked: list[tuple[int, int | None]]) -> list[Record]:
        """Everything up to the offsets that are asked for, or ends that are looked up now. On a thread of its own."""
        ends = self._log.ends(self._topic, {one for one, upto in asked if upto is None})
        for one, upto in asked:
            ends[one] = max(ends.get(one, 0), upto if upto is not None else 0)
        deadline_s = self._clock.monotonic_s() + READ_S_MAX
        records: list[Record] = []
        while any(reader.position(one) < end for one, end in ends.items()):
            if self._clock.monotonic_s() > deadline_s:
                raise LogUnavailable(f"reading {self._topic} to its end took more than {READ_S_MAX:g} s")
            try:
                records += reader.poll(POLL_RECORDS_MAX, POLL_S)
            except OffsetTrimmed:
                # what was trimmed belongs to calls that have their result
                if not pass_trimmed(self._log, self._topic, reader, list(self._positions)):
                    raise
        return records

    def _keep(self, record: Record) -> None:
        rows = self._rows.get(record.partition)
        if rows is None:
            return
        try:
            read = decode_ledger(record.key, record.value, record.headers)
        except ForeignRecord:
            self.foreign_records += 1
            return
        intent_hash = read.envelope.intent_hash
        if intent_hash not in self._settled:
            self._unsaved[record.partition].add(intent_hash)
            rows[intent_hash] = entered(rows.get(intent_hash, EMPTY), read, record.timestamp_ms)


_OVER: Final = Row(done=True)


def _decided(row: Row, slot: int, body: LedgerBody) -> bool:
    """Whether the log has said what became of an entry."""
    if row.done:
        return True
    if isinstance(body, Pending):
        return row.pending_until is not None or len(row.slots) > slot
    return len(row.slots) >= slot
