"""A log in memory, one partition for each topic, with the ways in which an append can go wrong."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Mapping
from typing import Any, Final

from tests.simulation.loop import PROCESS, Process, SimLoop
from tracklog.infra.log.port import Bounds, Delivered, Headers, Position, Record
from tracklog.schemas.errors import AppendUnknown

TIMEOUT_S: Final = 4.0
"""Until an append without a report is unknown."""
LATE_S: Final = 40.0
"""How much later one that is unknown may be stored."""
APPEND_FAULTS: Final = ("double", "stored unknown", "lost unknown", "late unknown", "slow")


class Store:
    """What the brokers have. `landed` is called with each record at the moment in which it can be read."""

    def __init__(self, loop: SimLoop, faults: Mapping[int, str], landed: Callable[[Record], None]) -> None:
        self.loop = loop
        self.records: dict[str, list[Record]] = {}
        self.appends = 0
        self._faults = faults
        self._landed = landed
        self._last: dict[tuple[Process, str], float] = {}
        self._waiting: list[tuple[str, Process, asyncio.Future[None]]] = []
        self.told: Callable[[str], None] = lambda _: None

    def of(self, topic: str) -> list[Record]:
        return self.records.setdefault(topic, [])

    def land(self, topic: str, key: bytes, value: bytes, headers: Headers, taken_us: int) -> Position:
        kept = self.of(topic)
        record = Record(topic, 0, len(kept), taken_us // 1000, key, value, headers)
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
        at_s = max(self._last.get((process, topic), 0.0) + 1e-6, loop.time() + chance.uniform(0, 0.02))
        if fault == "slow":
            at_s += chance.uniform(0.5, 3.0)
        if fault != "late unknown":
            self._last[process, topic] = at_s
        else:
            at_s = loop.time() + TIMEOUT_S + chance.uniform(0.0, LATE_S)
        taken_us = loop.now_us

        def report(position: Position | None) -> None:
            delivered(position, None if position is not None else AppendUnknown("no report came in time"))

        def land() -> None:
            if not process.alive and chance.random() < 0.5:
                return  # it never left the process
            position = self.land(topic, key, value, headers, taken_us)
            if fault == "double":
                self.land(topic, key, value, headers, taken_us)
            if fault not in ("stored unknown", "late unknown"):
                loop.call_later(chance.uniform(0, 0.02), report, position, context=context)

        if fault is not None:
            self.told(f"append {self.appends} of {process.name} to {topic.rpartition('.')[2]}: {fault}")
        if fault != "lost unknown":
            loop.call_at(at_s, land, context=loop.world.context)
        if fault in ("stored unknown", "late unknown", "lost unknown"):
            loop.call_later(TIMEOUT_S, report, None, context=context)


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
        return Bounds(0, len(self.store.of(topic)))

    def reader(self, topic: str, starts: Mapping[int, int]) -> SimReader:
        return SimReader(self.store, topic, starts)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"the simulation's log has no {name}: nothing that it runs asked for it yet")


class SimReader:
    def __init__(self, store: Store, topic: str, starts: Mapping[int, int]) -> None:
        self._store, self._topic = store, topic
        self._next = starts.get(0, 0)

    def poll(self, max_records: int, timeout_s: float) -> list[Record]:
        found = self._store.of(self._topic)[self._next : self._next + max_records]
        self._next += len(found)
        if not found:
            self._store.loop.idle_s = timeout_s
        return found

    def position(self, partition: int) -> int:
        return self._next

    def seek(self, partition: int, offset: int) -> None:
        self._next = offset

    def close(self) -> None: ...
