"""A log in memory, one partition for each topic, with the ways in which an append can go wrong, and with trimming."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final

from tests.simulation.loop import PROCESS, Process, SimLoop
from tracklog.infra.log.offsets import offset_trimmed
from tracklog.infra.log.port import Bounds, Delivered, Headers, Position, Record
from tracklog.schemas.catalog import HEADER_TYPE
from tracklog.schemas.errors import AppendUnknown

TIMEOUT_S: Final = 4.0
"""Until an append without a report is unknown."""
LATE_S: Final = 40.0
"""How much later one that is unknown may be stored."""
APPEND_FAULTS: Final = ("double", "stored unknown", "lost unknown", "late unknown", "slow")


class Store:
    """What the brokers have. `landed` is called with each record at the moment in which it can be read, `taken` with
    the type of each that a process appends: it says whether the record stays in the process until that wakes."""

    def __init__(self, loop: SimLoop, faults: Mapping[int, str], landed: Callable[[Record], None]) -> None:
        self.loop = loop
        self.records: dict[str, list[Record]] = {}
        self.first: dict[str, int] = {}
        self.gone: set[tuple[str, int]] = set()
        """Records that a cleaner took out, by topic and offset."""
        self.appends = 0
        self._faults = faults
        self._landed = landed
        self._last: dict[tuple[Process, str], float] = {}
        self._waiting: list[tuple[str, Process, asyncio.Future[None]]] = []
        self.told: Callable[[str], None] = lambda _: None
        self.taken: Callable[[str, Process], bool] = lambda _, __: False

    def of(self, topic: str) -> list[Record]:
        """All that ever was there, by offset."""
        return self.records.setdefault(topic, [])

    def trim(self, topic: str, before: int) -> None:
        """Deletes a prefix."""
        self.first[topic] = max(self.first.get(topic, 0), before)

    def bounds(self, topic: str) -> Bounds:
        return Bounds(self.first.get(topic, 0), len(self.of(topic)))

    def kept(self, topic: str, start: int, end: int) -> list[Record]:
        records = self.of(topic)[start:end]
        return [one for one in records if (topic, one.offset) not in self.gone] if self.gone else records

    def land(self, topic: str, key: bytes, value: bytes, headers: Headers) -> Position:
        kept = self.of(topic)
        record = Record(topic, 0, len(kept), self.loop.now_us // 1000, key, value, headers)
        kept.append(record)
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            if one[0] == topic:
                lag_s = self.loop.chance.choice((0.0, 0.01, 0.2, 3.0))
                self.loop.later(lag_s, _wake, one[2], process=one[1])
            else:
                self._waiting.append(one)
        self._landed(record)
        return Position(0, record.offset, record.timestamp_ms)

    async def news(self, topic: str, known: int) -> None:
        """Returns when the topic has more than so many records, some time after they came."""
        if len(self.of(topic)) > known:
            return
        future: asyncio.Future[None] = self.loop.create_future()
        self._waiting.append((topic, PROCESS.get(), future))
        await future

    def take(self, topic: str, key: bytes, value: bytes, headers: Headers, delivered: Delivered) -> None:
        """One append of a process: in order with its others, but for one that comes late."""
        loop, chance, process = self.loop, self.loop.chance, PROCESS.get()
        self.appends += 1
        fault = self._faults.get(self.appends)
        context = contextvars.copy_context()
        began_s = loop.time()
        held = self.taken(_type_of(headers), process)
        if held:
            began_s = max(began_s, process.awake_s)
        at_s = max(self._last.get((process, topic), 0.0) + 1e-6, began_s + chance.uniform(0, 0.02))
        if fault == "slow":
            at_s += chance.uniform(0.5, 3.0)
        if fault != "late unknown":
            self._last[process, topic] = at_s
        else:
            at_s = began_s + TIMEOUT_S + chance.uniform(0.0, LATE_S)

        def report(position: Position | None) -> None:
            delivered(position, None if position is not None else AppendUnknown("no report came in time"))

        def land() -> None:
            if not process.alive and (held or chance.random() < 0.5):
                return  # it never left the process
            position = self.land(topic, key, value, headers)
            if fault == "double":
                self.land(topic, key, value, headers)
            if fault not in ("stored unknown", "late unknown"):
                loop.call_later(chance.uniform(0, 0.02), report, position, context=context)

        if fault is not None:
            self.told(f"append {self.appends} of {process.name} to {topic.rpartition('.')[2]}: {fault}")
        if fault != "lost unknown":
            loop.call_at(at_s, land, context=loop.world.context)
        if fault in ("stored unknown", "late unknown", "lost unknown"):
            loop.call_at(began_s + TIMEOUT_S, report, None, context=context)


def _type_of(headers: Headers) -> str:
    return next(value.decode() for name, value in headers if name == HEADER_TYPE)


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class SimLog:
    """The log as a process sees it (see `Log`)."""

    url = "sim:"

    def __init__(self, store: Store) -> None:
        self.store = store

    def append(self, topic: str, key: bytes, value: bytes, headers: Headers, delivered: Delivered) -> None:
        self.store.take(topic, key, value, headers, delivered)

    def partition_count(self, topic: str) -> int:
        return 1

    def bounds(self, topic: str, partition: int) -> Bounds:
        return self.store.bounds(topic)

    def ends(self, topic: str, partitions: Collection[int]) -> dict[int, int]:
        return {one: self.store.bounds(topic).end for one in partitions}

    def reader(self, topic: str, starts: Mapping[int, int], *, follows: bool = False) -> SimReader:
        return SimReader(self.store, topic, starts)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"the simulation's log has no {name}: nothing that it runs asked for it yet")


class SimReader:
    def __init__(self, store: Store, topic: str, starts: Mapping[int, int]) -> None:
        self._store, self._topic = store, topic
        self._next = starts.get(0, 0)

    def poll(self, max_records: int, timeout_s: float) -> Iterable[Record]:
        bounds = self._store.bounds(self._topic)
        if self._next < bounds.first:
            raise offset_trimmed(self._topic, 0, self._next, bounds)
        end = min(self._next + max_records, bounds.end)
        found = self._store.kept(self._topic, self._next, end)
        if self._next == end:
            self._store.loop.idle_s = timeout_s
        self._next = end
        return found

    def position(self, partition: int) -> int:
        return self._next

    def seek(self, partition: int, offset: int) -> None:
        self._next = offset

    def close(self) -> None: ...
