"""`memory:NAME`: the log as a fake with the real contract, for tests of programs that write or read.

It passes the same contract suite as the other adapters. `faults` decides for each append what goes wrong;
`threaded=False` leaves every delivery report to an explicit `deliver()`, so that one scheduler decides when.
"""

from __future__ import annotations

import enum
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final, NamedTuple

from tracklog.infra.log.group_member import EmbeddedMember
from tracklog.infra.log.memory_store import MemoryGroup, MemoryReader, MemoryStore, Partition
from tracklog.infra.log.partitioner import partition_of
from tracklog.infra.log.port import Bounds, Delivered, GroupListener, Headers, Position, TopicInfo
from tracklog.infra.log.record_size import check_record_size
from tracklog.schemas.errors import AppendError, AppendRefused, AppendUnknown, ClientFatal, LogQueueFull
from tracklog.schemas.topics import TopicSpec

QUEUE_RECORDS_MAX: Final = 100_000
SESSION_S: Final = 10.0
TURN_INTERVAL_S: Final = 0.02


class Fault(enum.Enum):
    """What becomes of one append, seen from outside."""

    STORE_UNKNOWN = "stored, but reported as AppendUnknown"
    DROP_UNKNOWN = "not stored, and reported as AppendUnknown"
    DELAY = "neither stored nor reported before `release`"
    DELAY_UNKNOWN = "reported as AppendUnknown now, and stored by `release`: a broker frozen past the time-out"
    REFUSE = "not stored, and reported as AppendRefused"
    QUEUE_FULL = "LogQueueFull raised by the append itself"


Faults = Callable[[str, bytes, bytes], Fault | None]
"""Topic, key and value of an append to its fault; None delivers normally."""


class _Append(NamedTuple):
    partition: Partition
    key: bytes
    value: bytes
    headers: Headers
    delivered: Delivered | None


class _Report(NamedTuple):
    delivered: Delivered
    position: Position | None
    error: AppendError | None


class MemoryLog:
    """See `Log`. Two MemoryLogs over one `MemoryStore` are like two processes on one log."""

    def __init__(
        self,
        store: MemoryStore | None = None,
        *,
        now_ms: Callable[[], int],
        faults: Faults | None = None,
        threaded: bool = True,
        queue_records_max: int = QUEUE_RECORDS_MAX,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.store = store if store is not None else MemoryStore()
        self.faults = faults
        self._now_ms = now_ms
        self._threaded = threaded
        self._queue_records_max = queue_records_max
        self._monotonic_s = monotonic_s
        self._changed = threading.Condition()
        self._reports: deque[_Report] = deque()
        self._open = 0
        self._held: list[_Append] = []
        self._closed = False
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        return f"memory:{self.store.name}"

    def append(self, topic: str, key: bytes, value: bytes, headers: Headers, delivered: Delivered) -> None:
        check_record_size(topic, key, value, headers)
        partitions = self.store.topic(topic).partitions
        append = _Append(partitions[partition_of(key, len(partitions))], key, value, headers, delivered)
        fault = self.faults(topic, key, value) if self.faults is not None else None
        with self._changed:
            if self._closed:
                raise ClientFatal(f"the log {self.url} is closed")
            if fault is Fault.QUEUE_FULL or self._open >= self._queue_records_max:
                raise LogQueueFull(f"{self._open} appends are open in {self.url}", hint="wait and append again")
            self._open += 1
            self._take(append, fault)
            self._ensure_thread()
            self._changed.notify_all()

    def release(self, count: int | None = None) -> int:
        """Stores the first `count` delayed appends (all of them by default); returns how many."""
        with self._changed:
            released = self._held[:count]
            del self._held[: len(released)]
            for append in released:
                position = self._store(append)
                if append.delivered is not None:
                    self._reports.append(_Report(append.delivered, position, None))
            self._changed.notify_all()
        return len(released)

    def deliver(self, count: int | None = None) -> int:
        """Hands out up to `count` waiting delivery reports on this thread (for `threaded=False`)."""
        handed = 0
        while count is None or handed < count:
            with self._changed:
                if not self._reports:
                    break
                report = self._reports.popleft()
            self._hand_out(report)
            handed += 1
        return handed

    def flush(self, timeout_s: float) -> int:
        if not self._threaded:
            self.deliver()
        with self._changed:
            self._changed.wait_for(lambda: self._open == 0, timeout_s)
            return self._open

    def partition_count(self, topic: str) -> int:
        return len(self.store.topic(topic).partitions)

    def bounds(self, topic: str, partition: int) -> Bounds:
        return self.store.bounds(topic, partition)

    def ends(self, topic: str, partitions: Collection[int]) -> dict[int, int]:
        return {one: self.store.bounds(topic, one).end for one in partitions}

    def offset_at(self, topic: str, partition: int, timestamp_ms: int) -> int:
        return self.store.offset_at(topic, partition, timestamp_ms)

    def reader(self, topic: str, starts: Mapping[int, int], *, follows: bool = False) -> MemoryReader:
        return MemoryReader(self.store, topic, starts)

    def group(self, group_id: str, topic: str, listener: GroupListener) -> EmbeddedMember:
        return EmbeddedMember(
            self.store.group(group_id, topic),
            MemoryReader(self.store, topic, {}),
            listener,
            partitions=self.partition_count(topic),
            session_s=SESSION_S,
            turn_interval_s=TURN_INTERVAL_S,
            monotonic_s=self._monotonic_s,
            new_id=self.store.new_member_id,
        )

    def describe(self, topic: str) -> TopicInfo:
        return self.store.describe(topic)

    def create(self, specs: Iterable[TopicSpec]) -> list[str]:
        return self.store.create(specs)

    def delete_records(self, topic: str, before: Mapping[int, int]) -> None:
        self.store.delete_records(topic, before)

    def ping(self, timeout_s: float) -> None:
        """Always there, until it is closed."""
        with self._changed:
            if self._closed:
                raise ClientFatal(f"the log {self.url} is closed")

    def close(self) -> None:
        with self._changed:
            if self._closed:
                return
            self._closed = True
            for append in self._held:
                if append.delivered is not None:
                    error = AppendUnknown(f"{self.url} was closed while an append was delayed")
                    self._reports.append(_Report(append.delivered, None, error))
            self._held.clear()
            self._changed.notify_all()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout=10)
        self.deliver()

    def _take(self, append: _Append, fault: Fault | None) -> None:
        if fault is Fault.DELAY:
            self._held.append(append)
            return
        position: Position | None = None
        error: AppendError | None = None
        if fault is None or fault is Fault.STORE_UNKNOWN:
            position = self._store(append)
        elif fault is Fault.DELAY_UNKNOWN:
            self._held.append(append._replace(delivered=None))
        if fault is Fault.REFUSE:
            error = AppendRefused(f"an append to {append.partition.topic} was refused (injected)")
        elif fault is not None:
            position = None
            error = AppendUnknown(f"an append to {append.partition.topic} was not reported in time (injected)")
        assert append.delivered is not None
        self._reports.append(_Report(append.delivered, position, error))

    def _store(self, append: _Append) -> Position:
        return self.store.store(append.partition, self._now_ms(), append.key, append.value, append.headers)

    def _ensure_thread(self) -> None:
        if self._threaded and self._thread is None:
            self._thread = threading.Thread(target=self._run, name="tracklog-memory-delivery", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._reports or self._closed)
                if not self._reports:
                    return
                report = self._reports.popleft()
            self._hand_out(report)

    def _hand_out(self, report: _Report) -> None:
        try:
            report.delivered(report.position, report.error)
        finally:
            with self._changed:
                self._open -= 1
                self._changed.notify_all()


__all__ = ["Fault", "Faults", "MemoryGroup", "MemoryLog", "MemoryStore"]
